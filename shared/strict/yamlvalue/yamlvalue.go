// Package yamlvalue reads values of YAML documents as package strict does: by what is written.
// A YAML library that decodes 0100 returns 64, and 0.5 becomes 0 where a whole number is wanted.
//
// Errors name the line, the field, the value and the bounds.
package yamlvalue

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/strict"
)

// Int reads a whole decimal number of at least low and at most high. A quoted number is an error,
// because it is a text.
func Int(field string, n *yaml.Node, low, high int64) (int64, error) {
	text, err := plain(field, n, "a whole number")
	if err != nil {
		return 0, err
	}
	value, err := strict.Int(field, text, low, high)
	return value, at(n, err)
}

// Bool reads true or false. Yes, on and 1 are errors.
func Bool(field string, n *yaml.Node) (bool, error) {
	text, err := plain(field, n, "true or false")
	if err != nil {
		return false, err
	}
	value, err := strict.Bool(field, text)
	return value, at(n, err)
}

// Name reads a name of 1 to bytesMax bytes: see strict.Name.
func Name(field string, n *yaml.Node, bytesMax int) (string, error) {
	text, err := Text(field, n)
	if err != nil {
		return "", err
	}
	return text, at(n, strict.Name(field, text, bytesMax))
}

// Text returns a scalar as it is written, so that a name such as on or 007 does not change. Lists and mappings are
// errors, and so is a field without a value; "" is a value.
func Text(field string, n *yaml.Node) (string, error) {
	n = followed(n)
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return "", at(n, fmt.Errorf("%s has no value", field))
	case n.Kind != yaml.ScalarNode:
		return "", at(n, fmt.Errorf("%s is %s, want one value", field, kindOf(n)))
	case n.ShortTag() == "!!binary":
		return "", at(n, fmt.Errorf("%s is binary, want text", field))
	}
	return n.Value, nil
}

// plain returns a scalar that is not quoted.
func plain(field string, n *yaml.Node, want string) (string, error) {
	text, err := Text(field, n)
	n = followed(n)
	if err == nil && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return "", at(n, fmt.Errorf("%s is the text %s, want %s without quotes", field, strict.Quote(text), want))
	}
	return text, err
}

// followed returns the node that an alias stands for.
func followed(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	return "no value"
}

func at(n *yaml.Node, err error) error {
	if err == nil || n == nil || n.Line == 0 {
		return err
	}
	return fmt.Errorf("line %d: %w", n.Line, err)
}
