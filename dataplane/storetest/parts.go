package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
)

// parts are the optional parts that an origin has; the others are nil.
type parts struct {
	store.Granter
	store.Mailbox
	store.Relayed
}

func partsOf(o store.Origin) (p parts) {
	p.Granter, _ = o.(store.Granter)
	p.Mailbox, _ = o.(store.Mailbox)
	p.Relayed, _ = o.(store.Relayed)
	return p
}

// optional are the parts that are found by type assertion.
var optional = []reflect.Type{
	reflect.TypeFor[store.Granter](), reflect.TypeFor[store.Mailbox](), reflect.TypeFor[store.Relayed](),
}

// optionalOf returns the names of the parts that an origin has.
func optionalOf(o store.Origin) (names []string) {
	for _, part := range optional {
		if reflect.TypeOf(o).Implements(part) {
			names = append(names, part.Name())
		}
	}
	return names
}

var originPartTests = map[string]func(*originTest){
	"are whole or not there": func(h *originTest) {
		at := reflect.TypeOf(h.Origin.Origin)
		for _, part := range optional {
			if has, problems := compared(h.Origin.Origin, part); has && len(problems) > 0 {
				h.Errorf("%v has methods of %v, and is none: %v", at, part, problems)
			}
		}
		if h.Mailbox != nil && h.Relayed == nil {
			h.Errorf("%v is a store.Mailbox, and not store.Relayed: no relay can store settings in it", at)
		}
	},
	"are not hidden by a wrapper": func(h *originTest) {
		testNothingHidden(h, h.Origin.Origin)
	},
	"are those of every way to the origin": func(h *originTest) {
		way := h.Client(h)
		testNothingHidden(h, way)
		if got, want := optionalOf(way), optionalOf(h.Origin.Origin); !slices.Equal(got, want) {
			h.Errorf("another way is %v, this one is %v", got, want)
		}
	},
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

// testNothingHidden expects an origin to have all parts of an origin that it embeds as an interface.
func testNothingHidden(t testing.TB, o store.Origin) {
	t.Helper()
	value := reflect.Indirect(reflect.ValueOf(o))
	if value.Kind() != reflect.Struct {
		return
	}
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if !field.Anonymous || !field.IsExported() || field.Type.Kind() != reflect.Interface || value.Field(i).IsNil() {
			continue
		}
		inner := value.Field(i).Elem().Type()
		for _, part := range optional {
			if inner.Implements(part) && !reflect.TypeOf(o).Implements(part) {
				t.Errorf("%T embeds %v, which hides that a %v is a %v: embed a store.FullOrigin, or forward the part", o,
					field.Type, inner, part)
			}
		}
	}
}
