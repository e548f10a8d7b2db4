package main

import (
	"bytes"
	"encoding/json"
	"io"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// form is the format of output: tables for people, documents for programs.
type form string

const (
	formTable form = "table"
	formJSON  form = "json"
	formYAML  form = "yaml"
)

// documents reports whether output is for programs.
func (f form) documents() bool { return f == formJSON || f == formYAML }

// print writes a response: as JSON or YAML for programs, and with write for people.
func (c *call) print(answer proto.Message, write func(io.Writer)) error {
	if !c.form.documents() {
		write(c.stdout)
		return nil
	}
	text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(answer)
	if err != nil {
		return err
	}
	return c.document(json.RawMessage(text))
}

// document writes a value that JSON can represent, in the chosen format.
func (c *call) document(what any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(what); err != nil {
		return err
	}
	if c.form != formYAML {
		_, err := text.WriteTo(c.stdout)
		return err
	}
	document, err := asYAML(text.Bytes())
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(append([]byte("---\n"), document...)) // with --watch there are several documents
	return err
}

// asYAML converts a JSON document to YAML's block style and keeps the order of its fields.
func asYAML(text []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil { // YAML is a superset of JSON
		return nil, err
	}
	inBlocks(&node)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return nil, err
	}
	return b.Bytes(), encoder.Close()
}

// inBlocks removes JSON's braces and quotation marks. Text that looks like a number keeps its quotation marks.
func inBlocks(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		inBlocks(child)
	}
}
