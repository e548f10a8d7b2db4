package routes

import (
	"bytes"
	"encoding/json"
)

// A body is checked once, as a whole, and then taken apart where it lies: nothing is allocated for
// fields that are not used.

// valid reports whether text is a JSON value. Its strings can have bytes that are not UTF-8: object.string rejects
// them, and object.identifier accepts them.
func valid(text []byte) bool { return json.Valid(text) }

// members calls each with the name and the value of each field of an object, in order. text must be valid JSON. members
// returns false if it is not an object.
func members(text []byte, each func(name, value []byte)) bool {
	i := space(text, 0)
	if i == len(text) || text[i] != '{' {
		return false
	}
	for i = space(text, i+1); text[i] != '}'; i = next(text, i) {
		end := valueEnd(text, i)
		name := nameOf(text[i:end])
		i = space(text, space(text, end)+1) // past the colon
		end = valueEnd(text, i)
		each(name, text[i:end])
		i = end
	}
	return true
}

// items calls each with each value of an array, in their order. text is valid JSON; items is false if
// it is no array.
func items(text []byte, each func(value []byte)) bool {
	i := space(text, 0)
	if i == len(text) || text[i] != '[' {
		return false
	}
	for i = space(text, i+1); text[i] != ']'; i = next(text, i) {
		end := valueEnd(text, i)
		each(text[i:end])
		i = end
	}
	return true
}

// next returns where the next value begins after the value that ends at i, or the closing bracket.
func next(text []byte, i int) int {
	i = space(text, i)
	if text[i] == ',' {
		return space(text, i+1)
	}
	return i
}

func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// valueEnd returns the index at which the value that begins at i ends.
func valueEnd(text []byte, i int) int {
	for depth := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i)
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of the enclosing value
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// stringEnd returns the index of the quote that ends the string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// nameOf returns a field's name, which is a JSON string.
func nameOf(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var name string
	_ = json.Unmarshal(text, &name) // it is valid
	return []byte(name)
}
