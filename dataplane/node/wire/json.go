package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// UnmarshalJSON reads a message as protojson.Unmarshal does, except that fields which limited
// callers choose may hold strings that are not Unicode text. Bytes that are not UTF-8 are kept. An
// escaped half of a UTF-16 pair becomes the three bytes to which UTF-8 would encode it.
func UnmarshalJSON(text []byte, m proto.Message) error {
	return UnmarshalJSONWith(protojson.UnmarshalOptions{}, text, m)
}

// UnmarshalJSONWith is UnmarshalJSON with options.
func UnmarshalJSONWith(options protojson.UnmarshalOptions, text []byte, m proto.Message) error {
	if utf8.Valid(text) && !bytes.Contains(text, []byte(`\u`)) || !json.Valid(text) {
		return options.Unmarshal(text, m)
	}
	// Each such string is replaced by a random name, and restored after the message was read.
	kept := &oddStrings{mark: rand.Text()}
	if err := options.Unmarshal(kept.replace(text), m); err != nil {
		return err
	}
	if len(kept.text) == 0 {
		return nil
	}
	return kept.restore(m.ProtoReflect())
}

// oddStrings collects the strings of a JSON text that are not Unicode text.
type oddStrings struct {
	mark string
	text []string
}

// replace returns valid JSON in which a name stands for each value that is not Unicode text. The
// names of fields stay.
func (s *oddStrings) replace(text []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}
		start := i
		for i++; text[i] != '"'; i++ {
			if text[i] == '\\' {
				i++
			}
		}
		literal := text[start : i+1]
		value, unicode := String(literal)
		if unicode || bytes.HasPrefix(bytes.TrimLeft(text[i+1:], " \t\r\n"), []byte(":")) {
			continue
		}
		out = append(append(out, text[from:start]...), `"`+s.mark+strconv.Itoa(len(s.text))+`"`...)
		s.text = append(s.text, value)
		from = i + 1
	}
	return append(out, text[from:]...)
}

// restore replaces the names in a message's fields by the strings for which they stand.
func (s *oddStrings) restore(m protoreflect.Message) (err error) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = s.restore(v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			err = s.restore(v.Message())
		case f.Kind() == protoreflect.StringKind && f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				if strings.HasPrefix(v.List().Get(i).String(), s.mark) {
					err = notText(f)
				}
			}
		case f.Kind() == protoreflect.StringKind:
			err = s.restoreField(m, f, v.String())
		}
		return err == nil
	})
	return err
}

func (s *oddStrings) restoreField(m protoreflect.Message, f protoreflect.FieldDescriptor, name string) error {
	index, ok := strings.CutPrefix(name, s.mark)
	if !ok {
		return nil
	}
	i, err := strconv.Atoi(index)
	if err != nil || i >= len(s.text) || !limited(f) {
		return notText(f)
	}
	m.Set(f, protoreflect.ValueOfString(s.text[i]))
	return nil
}

func notText(f protoreflect.FieldDescriptor) error {
	return fmt.Errorf("invalid UTF-8 in field %s", f.Name())
}

// String decodes a JSON string, which must be valid JSON and have its quotes. It keeps bytes that
// are not UTF-8. An escaped half of a UTF-16 pair becomes the three bytes to which UTF-8 would
// encode it, and unicode is false.
func String(literal []byte) (text string, unicode bool) {
	inner := literal[1 : len(literal)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), utf8.Valid(inner)
	}
	out, unicode := make([]byte, 0, len(inner)), utf8.Valid(inner)
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			out = append(out, inner[i])
			continue
		}
		i++
		if inner[i] != 'u' {
			out = append(out, escaped(inner[i]))
			continue
		}
		r := unit(inner[i+1:])
		i += 4
		if utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, nextUnit(inner[i+1:])); pair != utf8.RuneError {
				r, i = pair, i+6
			} else {
				unicode = false
				out = append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
				continue
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out), unicode
}

// escaped returns the byte that a backslash and c encode.
func escaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// unit returns the UTF-16 unit that four hexadecimal digits encode.
func unit(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // the JSON is valid, so there is no error
	return rune(n)
}

// nextUnit returns the escaped UTF-16 unit at the start of text, or 0.
func nextUnit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	return unit(text[2:])
}
