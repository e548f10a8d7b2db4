package controlplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Critical findings alone refuse a start; the refusal names at most five of them, and says how many more there are.
func TestRefuseCritical(t *testing.T) {
	warning := Finding{Kind: FindingRegionDark, Subject: "ap", Severity: SeverityWarning, What: "A node is late."}
	for _, overall := range []Severity{"", SeverityOK, SeverityWarning} {
		if err := RefuseCritical(HealthDocument{Overall: overall, Findings: []Finding{warning}}); err != nil {
			t.Errorf("%q: %v", overall, err)
		}
	}
	d := HealthDocument{Overall: SeverityCritical, LeftOut: 2}
	for i := range 6 {
		d.Findings = append(d.Findings, Finding{Kind: FindingRegionDark, Subject: fmt.Sprintf("r%d", i), Severity: SeverityCritical,
			What: "No node is live."})
	}
	d.Findings = append(d.Findings, warning)
	const want = "not now: the health of the fleet is critical (region_dark r0: No node is live; region_dark r1: No node is " +
		"live; region_dark r2: No node is live; region_dark r3: No node is live; region_dark r4: No node is live; and 3 " +
		"more); force starts it anyway"
	if err := RefuseCritical(d); !errors.Is(err, ErrConflict) || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// What is critical is what force leaves out of account, bounded; of a fleet that works it is nothing.
func TestForced(t *testing.T) {
	if got := Forced(HealthDocument{Overall: SeverityWarning}); got != "" {
		t.Errorf("%q", got)
	}
	d := HealthDocument{Overall: SeverityCritical}
	if got := Forced(d); got != "it names no finding" {
		t.Errorf("%q", got)
	}
	d.Findings = []Finding{{Kind: FindingRegionDark, Subject: "eu", Severity: SeverityCritical, What: "No node is live."}}
	if got := Forced(d); got != "region_dark eu: No node is live" {
		t.Errorf("%q", got)
	}
	d.Findings = slices.Repeat([]Finding{{Kind: FindingRegionDark, Severity: SeverityCritical, What: strings.Repeat("é", 200)}}, 5)
	if got := Forced(d); len(got) > forcedBytesMax || !utf8.ValidString(got) {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}

// A forced start is in the rollout's history, with what was critical; one of a healthy fleet says nothing of it.
func TestAForcedStartIsInTheHistory(t *testing.T) {
	for forced, want := range map[string]string{
		"":                                "start: fewer rows\n",
		"region_dark eu: No node is live": "start: fewer rows\nforced: the health of the fleet was critical: region_dark eu: No node is live\n",
	} {
		var r Rollout
		begin := RolloutBegin{Spec: spec(canary, all), By: By{Actor: "ann", Reason: "fewer rows"}, Regions: []string{"eu", "us"}, Forced: forced}
		if _, fresh, err := r.Begin(beginning{}, "r1", begin); err != nil || !fresh || r.Forced != forced {
			t.Fatalf("%q, %t, %v", r.Forced, fresh, err)
		}
		got := ""
		for _, e := range r.Events {
			got += e.What + ": " + e.Text + "\n"
			if e.Actor != "ann" {
				t.Errorf("by %s", e.Actor)
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// beginning is what a rollout asks before its first transition, of a fleet that has had none.
type beginning struct{}

func (beginning) NowMs() (int64, error)       { return 1, nil }
func (beginning) Used(string) (string, error) { return "", nil }
func (beginning) Record(TuningTrace) error    { return nil }
