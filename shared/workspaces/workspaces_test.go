package workspaces_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

// A set has exactly the names that it was made of. The set without names has all.
func TestASetHasItsNamesAlone(t *testing.T) {
	some, err := workspaces.New("beta", "acme", "beta")
	if err != nil {
		t.Fatal(err)
	}
	if got := some.Names(); !slices.Equal(got, []string{"acme", "beta"}) || some.All() {
		t.Errorf("names %q, all %v", got, some.All())
	}
	for name, want := range map[string]bool{"acme": true, "beta": true, "": false, "acm": false, "acme,beta": false} {
		if some.Has(name) != want {
			t.Errorf("Has(%q) is %v", name, !want)
		}
	}
	all, err := workspaces.New()
	if err != nil || !all.All() || !all.Has("any") || !all.Has("") || all.Names() != nil || all.String() != "" {
		t.Errorf("the set without names: %q, %v", all, err)
	}
}

func TestNamesOutsideOfTheirBoundsAreRefused(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("x", window.WorkspaceBytesMax+1)} {
		if s, err := workspaces.New("acme", name); err == nil {
			t.Errorf("%d bytes are taken: %q", len(name), s)
		}
	}
	for _, text := range []string{"", ",", "acme,", "%", "%zz", strings.Repeat("x", window.WorkspaceBytesMax+1)} {
		if s, err := workspaces.Parse(text); err == nil {
			t.Errorf("%q is read as %q", text, s.Names())
		}
	}
}

// A text that is read is never the set of all workspaces, and is read again from its own text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "acme", "acme,beta", "a%2Cb", "%25", "%00,%FF", "a b", "ü", ",", "%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := workspaces.Parse(text)
		if err != nil {
			return
		}
		if s.All() || s.Has("") || len(s.Names()) == 0 {
			t.Fatalf("%q is read as %q", text, s.Names())
		}
		again, err := workspaces.Parse(s.String())
		if err != nil || !slices.Equal(again.Names(), s.Names()) {
			t.Fatalf("%q is read as %q, and its text %q as %q (%v)", text, s.Names(), s, again.Names(), err)
		}
	})
}
