package settings

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawDocument draws a document with few names, so that two documents share items.
func drawDocument(t *rapid.T, name string) *Document {
	var d Document
	for _, n := range []string{"a", "b", "c"} {
		if rapid.Bool().Draw(t, name+" namespace "+n) {
			of := DefaultNamespace("w", n)
			of.Shadow = rapid.Bool().Draw(t, name+" shadow of "+n)
			d.Namespaces = append(d.Namespaces, of)
		}
		for _, p := range []string{"x", "y*", "10.0.0.0/8"} {
			if rapid.Bool().Draw(t, name+" override "+n+p) {
				d.Overrides = append(d.Overrides, Override{Workspace: "w", Namespace: n, Pattern: p,
					Limit: rapid.Int64Range(0, 2).Draw(t, name+" limit of "+n+p)})
			}
		}
	}
	return &d
}

// The difference of two documents leads from one to the other, its reverse back, and it conflicts with a document
// exactly where this document differs from the first.
func TestADifferenceLeadsFromOneDocumentToAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawDocument(t, "from"), drawDocument(t, "to")
		c := Difference(from, to, true)
		if got := c.Apply(from); Difference(got, to, true).Items() != 0 || Difference(to, got, true).Items() != 0 {
			t.Fatalf("applied: %+v\nwant %+v", got, to)
		}
		if got := c.Reverse().Apply(c.Apply(from)); Difference(got, from, true).Items() != 0 {
			t.Fatalf("applied and reversed: %+v\nwant %+v", got, from)
		}
		if c.Conflicts(from).Items() != 0 {
			t.Fatalf("%+v conflicts with the document that it comes from", c)
		}
		if c.Items() > 0 && c.Validate() != nil {
			t.Fatal(c.Validate())
		}
		if c.Items() > 0 && c.Conflicts(to).Items() != c.Items() {
			t.Fatalf("of %d items %d conflict with the document after", c.Items(), c.Conflicts(to).Items())
		}
	})
}

func TestWithoutPruneADifferenceDeletesNothing(t *testing.T) {
	from := &Document{Overrides: []Override{{Workspace: "w", Namespace: "n", Pattern: "p", Limit: 1}}}
	if c := Difference(from, &Document{}, false); c.Items() != 0 {
		t.Error(c)
	}
	if c := Difference(from, &Document{}, true); len(c.Overrides) != 1 || c.Overrides[0].After != nil {
		t.Error(c)
	}
}

func aTrial() *LimitsTrial {
	before := Override{Workspace: "w", Namespace: "n", Pattern: "p*", Limit: 10}
	after := before
	after.Limit = 5
	shadowed := DefaultNamespace("w", "n")
	shadowed.Shadow = true
	return &LimitsTrial{Mode: TrialShadow,
		Change: Change{Namespaces: []NamespaceChange{{DefaultNamespace("w", "n"), shadowed}},
			Overrides: []OverrideChange{{&before, &after}}},
		Protected: []Protected{{"w", "n", "vip-*"}}}
}

func TestATrialIsReadAsItWasWritten(t *testing.T) {
	document, err := aTrial().Document()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadLimitsTrial([]byte(document))
	if err != nil || !reflect.DeepEqual(read, aTrial()) || !IsLimitsTrial([]byte(document)) {
		t.Errorf("%v: %+v", err, read)
	}
}

func TestABadTrialIsRefused(t *testing.T) {
	for want, spoil := range map[string]func(*LimitsTrial){
		"mode of the trial":        func(t *LimitsTrial) { t.Mode = "" },
		"1 to 500":                 func(t *LimitsTrial) { t.Change = Change{} },
		"protected[0]: namespace":  func(t *LimitsTrial) { t.Protected[0].Namespace = "" },
		"at most 100":              func(t *LimitsTrial) { t.Protected = slices.Repeat(t.Protected, 101) },
		"to differ":                func(t *LimitsTrial) { t.Change.Overrides[0].After = t.Change.Overrides[0].Before },
		"overrides[0]: limit":      func(t *LimitsTrial) { t.Change.Overrides[0].After.Limit = -1 },
		"repeats another":          func(t *LimitsTrial) { t.Change.Overrides = slices.Repeat(t.Change.Overrides, 2) },
		"namespaces[0]: outage is": func(t *LimitsTrial) { t.Change.Namespaces[0].After.Outage = "x" },
	} {
		trial := aTrial()
		spoil(trial)
		if _, err := trial.Document(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, document := range []string{"", "{}", `{"limits":null,"requires":["limits"]}`, `{"limits":{},"more":1}`, "[]"} {
		if _, err := ReadLimitsTrial([]byte(document)); err == nil {
			t.Errorf("%s is read", document)
		}
	}
	if IsLimitsTrial([]byte(`{"floor":0.1}`)) || IsLimitsTrial(nil) {
		t.Error("a tuning is a trial of limits")
	}
}

// Reading never panics, and what is read is written the same again.
func FuzzReadLimitsTrial(f *testing.F) {
	document, _ := aTrial().Document()
	f.Add([]byte(document))
	f.Add([]byte(`{"limits":{"mode":"enforce","change":{"overrides":[{}]}},"requires":["limits"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, err := ReadLimitsTrial(b)
		if err != nil {
			return
		}
		again, err := read.Document()
		if err != nil { // it is longer once it is written
			return
		}
		twice, err := ReadLimitsTrial([]byte(again))
		if err != nil || !reflect.DeepEqual(read, twice) {
			t.Errorf("%v: %+v, then %+v", err, read, twice)
		}
	})
}

// A trial is rejected if it is too long, or does not require limits alone.
func TestTrialsThatAreRejected(t *testing.T) {
	trial := LimitsTrial{Mode: TrialShadow, Change: Change{Overrides: []OverrideChange{
		{After: &Override{Workspace: "w", Namespace: "n", Pattern: "p", Limit: 1}}}}}
	good, err := trial.Document()
	if err != nil {
		t.Fatal(err)
	}
	for name, document := range map[string]string{
		"too long":       good + strings.Repeat(" ", TrialBytesMax-len(good)+1),
		"no requires":    strings.Replace(good, `"requires":["limits"]`, `"requires":[]`, 1),
		"two requires":   strings.Replace(good, `"requires":["limits"]`, `"requires":["limits","more"]`, 1),
		"other requires": strings.Replace(good, `"requires":["limits"]`, `"requires":["more"]`, 1),
	} {
		if _, err := ReadLimitsTrial([]byte(document)); !errors.Is(err, ErrInvalid) || document == good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadLimitsTrial([]byte(good + strings.Repeat(" ", TrialBytesMax-len(good)))); err != nil {
		t.Error(err)
	}
}
