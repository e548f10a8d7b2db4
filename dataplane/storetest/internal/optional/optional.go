// Package optional compares an origin with the optional parts of an origin, which are found by type assertion.
package optional

import (
	"fmt"
	"reflect"

	"github.com/weirhq/weir/dataplane/store"
)

var parts = []reflect.Type{
	reflect.TypeFor[store.Granter](), reflect.TypeFor[store.Mailbox](), reflect.TypeFor[store.Relayed](),
}

// Names returns the names of the parts that an origin has.
func Names(o store.Origin) (names []string) {
	for _, part := range parts {
		if reflect.TypeOf(o).Implements(part) {
			names = append(names, part.Name())
		}
	}
	return names
}

// Broken returns an error for each part of which an origin has only some methods, or some with another signature.
func Broken(o store.Origin) (problems []error) {
	for _, part := range parts {
		if has, wrong := compared(o, part); has && len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("%T has methods of %v, and is none: %v", o, part, wrong))
		}
	}
	return problems
}

// compared finds the methods of a part that an origin has not, or with another signature. It reports whether the origin
// has any of the part's methods, by name.
func compared(o store.Origin, part reflect.Type) (has bool, problems []string) {
	for i := range part.NumMethod() {
		want := part.Method(i)
		got := reflect.ValueOf(o).MethodByName(want.Name)
		if has = has || got.IsValid(); !got.IsValid() {
			problems = append(problems, fmt.Sprintf("%s is missing", want.Name))
		} else if got.Type() != want.Type {
			problems = append(problems, fmt.Sprintf("%s is %v, want %v", want.Name, got.Type(), want.Type))
		}
	}
	return has, problems
}

// Hidden returns an error for each part of an origin that another origin embeds as an interface, and does not have.
func Hidden(o store.Origin) (problems []error) {
	value := reflect.Indirect(reflect.ValueOf(o))
	if value.Kind() != reflect.Struct {
		return nil
	}
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if !field.Anonymous || !field.IsExported() || field.Type.Kind() != reflect.Interface || value.Field(i).IsNil() {
			continue
		}
		inner := value.Field(i).Elem().Type()
		for _, part := range parts {
			if inner.Implements(part) && !reflect.TypeOf(o).Implements(part) {
				problems = append(problems, fmt.Errorf("%T embeds %v, which hides that a %v is a %v: embed a store.FullOrigin, "+
					"or forward the part", o, field.Type, inner, part))
			}
		}
	}
	return problems
}
