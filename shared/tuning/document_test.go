package tuning

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A node never silently ignores a field that changes its behavior. It accepts a document that differs in nothing else.
func TestDocumentsOfOtherBuilds(t *testing.T) {
	for _, c := range []struct {
		document   string
		read       string // empty: it is taken
		parseFails bool
	}{
		{`{"floor":0.4,"of_a_newer_build":7}`, "", true},
		{`{"floor":0.4,"of_a_newer_build":7,"requires":["of_a_newer_build"]}`, `requires "of_a_newer_build", which this build does not support`, true},
		{`{"floor":0.4,"requires":["of_a_newer_build"]}`, "which this build does not support", true},
		{`{"floor":0.4,"requires":["floor","step"]}`, "", true}, // it is not whole
		{`{"floor":0.4,"requires":[]}`, "", true},
		{`{"floor":0.4,"requires":"floor"}`, "requires", true},
		{`{"floor":7,"of_a_newer_build":7}`, "floor is 7", true},
		{`{"floor":0.4,"requires":["` + strings.Repeat(`floor","`, 64) + `step"]}`, "requires has 65 fields (at most 64)", true},
	} {
		got, err := Read([]byte(c.document))
		switch {
		case c.read == "" && (err != nil || got.Floor != 0.4):
			t.Errorf("%.60s: %+v, %v", c.document, got, err)
		case c.read != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.read)):
			t.Errorf("%.60s: %v, want %s", c.document, err, c.read)
		}
		newer := strings.Contains(c.document, "of_a_newer_build")
		if _, err := ReadWhole([]byte(c.document)); (err == nil) != (c.read == "" && !newer) {
			t.Errorf("%.60s, to be written again: %v", c.document, err)
		}
		if _, err := Parse([]byte(c.document)); (err != nil) != c.parseFails {
			t.Errorf("%.60s, from an operator: %v", c.document, err)
		}
	}
}

// A field at the value that builds without the field use is not required.
func TestDocumentsRequireWhatIsNotNeutral(t *testing.T) {
	text, err := Default().Document()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "requires") {
		t.Errorf("the first release's fields are known to all: %s", text)
	}
	got, err := required(text, map[string]string{"strict_for_ms": "0", "step": "0", "floor": "0.2"})
	if err != nil || !slices.Equal(got, []string{"floor", "step"}) {
		t.Errorf("%v, %v", got, err)
	}
	defer func(before map[string]string) { neutral = before }(neutral)
	neutral = map[string]string{"step": "0"}
	if text, err = Default().Document(); err != nil || !strings.HasSuffix(string(text), `"requires":["step"]}`) {
		t.Errorf("%s, %v", text, err)
	}
	if again, err := Parse(text); err != nil || again != Default() {
		t.Errorf("%+v, %v", again, err)
	}
	rfc := RFC() // its step is 0
	if text, err = rfc.Document(); err != nil || strings.Contains(string(text), "requires") {
		t.Errorf("%s, %v", text, err)
	}
}

// Every name in neutral is a field, because a misspelt name would require nothing for ever.
func TestNeutralFieldsExist(t *testing.T) {
	for field := range neutral {
		if !slices.Contains(Fields(), field) {
			t.Errorf("%s is no field", field)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{`{}`, `{"x":1}`, `{"x":1,"requires":["x"]}`, `{"requires":["floor"]}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Read(text)
		strict, strictErr := Parse(text)
		if strictErr == nil && (err != nil || got != strict) {
			t.Fatalf("Parse takes it and Read does not: %v", err)
		}
		if err == nil && got.Validate() != nil {
			t.Fatal("taken out of bounds")
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("untyped error %v", err)
		}
	})
}
