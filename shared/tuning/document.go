package tuning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// Documents travel between builds: weir-control writes them, and nodes of the version before and of the version after
// read them. A field that a build does not have belongs to one of two kinds, which only the writer can distinguish:
//
//   - at its neutral value it requests the behavior of builds without the field, and may be ignored;
//   - at any other value it changes a node's behavior. A node that ignored it would not run the tuning that was rolled
//     out, but would report it as applied.
//
// So a document lists the fields of the second kind in "requires". If a build does not have one of these fields, it
// rejects the whole document: the node keeps the last good version, and its heartbeat has the reason.

// requiresMax bounds the fields that a document requires.
const requiresMax = 64

// neutral are the fields that were added after the first release, each with the JSON of
// the value at which a build without the field does the same.
var neutral = map[string]string{}

// document is the stored form.
type document struct {
	*Tuning
	Requires []string `json:"requires,omitempty"`
}

// Parse reads a document that an operator has written. The document must hold every field once, because an omitted
// field would set an earlier change back. Omitted, unknown and duplicate fields, trailing text, values outside their
// bounds, and values that contradict each other are errors.
func Parse(text []byte) (Tuning, error) {
	t, err := parse(text, true)
	if err != nil {
		return Tuning{}, err
	}
	if err := checkWhole(text); err != nil {
		return Tuning{}, err
	}
	return t, t.ValidateRelations()
}

// Read reads a document that a control plane has stored, of this build or another: fields that are left out keep their
// defaults, and unknown fields are ignored unless the document requires them.
func Read(text []byte) (Tuning, error) { return parse(text, false) }

// ReadWhole is Read for documents that will be written again. A field that this build does not have is an error,
// because writing would lose it.
func ReadWhole(text []byte) (Tuning, error) { return parse(text, true) }

func parse(text []byte, strict bool) (Tuning, error) {
	if len(text) > DocumentBytesMax {
		return Tuning{}, fmt.Errorf("%w: the document is %d bytes long (at most %d)", ErrInvalid, len(text), DocumentBytesMax)
	}
	t := Default()
	d := document{Tuning: &t}
	dec := json.NewDecoder(bytes.NewReader(text))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(&d); err != nil {
		return Tuning{}, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // the parser's error is text for people
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Tuning{}, fmt.Errorf("%w: text after the document's end", ErrInvalid)
	}
	if err := checkRequires(d.Requires); err != nil {
		return Tuning{}, err
	}
	if err := t.Validate(); err != nil {
		return Tuning{}, err
	}
	return t, nil
}

// checkWhole returns an error if a document, which was decoded before, lacks a field or has a field twice.
func checkWhole(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	_, _ = dec.Token() // the brace; of null there is nothing more
	var have []string
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // see parse
		}
		field, _ := name.(string)
		if field != "requires" && !slices.Contains(Fields(), field) { // the decoder takes "Floor" for floor
			return fmt.Errorf("%w: there is no field %.64q (fields: %s)", ErrInvalid, field, strings.Join(Fields(), ", "))
		}
		if slices.Contains(have, field) {
			return fmt.Errorf("%w: %.64q appears twice", ErrInvalid, field)
		}
		if string(value) != "null" {
			have = append(have, field)
		}
	}
	missing := slices.DeleteFunc(Fields(), func(f string) bool { return slices.Contains(have, f) })
	if len(missing) > 0 {
		return fmt.Errorf("%w: the document lacks %s: it must hold every field, because a missing one would return "+
			"to its default (to change single fields of the tuning in force: weirctl rollout start --set)",
			ErrInvalid, strings.Join(missing, ", "))
	}
	return nil
}

func checkRequires(fields []string) error {
	if len(fields) > requiresMax {
		return fmt.Errorf("%w: requires has %d fields (at most %d)", ErrInvalid, len(fields), requiresMax)
	}
	for _, f := range fields {
		if !slices.Contains(Fields(), f) {
			return fmt.Errorf("%w: the document requires %.64q, which this build does not support: upgrade it first",
				ErrInvalid, f)
		}
	}
	return nil
}

// Fields returns the names of all fields, in their order.
func Fields() (names []string) {
	t := reflect.TypeFor[Tuning]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// Document writes t in the form that Parse reads: every field present, so that another build's defaults do not change
// it, and a list of the fields that must not be ignored.
func (t Tuning) Document() ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // see Parse
	}
	required, err := required(b, neutral)
	if err != nil || len(required) == 0 {
		return b, err
	}
	return json.Marshal(document{&t, required})
}

// required returns the fields of a document that are not at their neutral values.
func required(text []byte, neutral map[string]string) (fields []string, err error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // see Parse
	}
	for field, value := range neutral {
		if string(values[field]) != value {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields, nil
}
