package watch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// Only critical findings prevent a start. The error names at most five of them, and how many more there are.
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
	if err := RefuseCritical(d); !errors.Is(err, controlplane.ErrConflict) || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// Forced returns the critical findings, bounded. For a fleet that works it returns nothing.
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
	if got := Forced(d); len(got) > rollout.ForcedBytesMax || !utf8.ValidString(got) {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}
