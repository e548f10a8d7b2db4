package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// Severity is the importance of a finding.
type Severity string

// Severities of findings. A document without findings is ok.
const (
	SeverityOK       Severity = "ok"
	SeverityInfo     Severity = "info"     // a person is awaited; nothing is wrong
	SeverityWarning  Severity = "warning"  // look at it today
	SeverityCritical Severity = "critical" // look at it now
)

// FindingKind is the kind of a finding. The list is fixed, because it is a label of metrics.
type FindingKind string

// The kinds of findings.
const (
	FindingMySQLDown         FindingKind = "mysql_down"
	FindingRestateDown       FindingKind = "restate_down"
	FindingRestateAdminDown  FindingKind = "restate_admin_down"
	FindingWatchLate         FindingKind = "watch_late"
	FindingNodesDead         FindingKind = "nodes_dead"
	FindingRegionDark        FindingKind = "region_dark"
	FindingFleetCutOff       FindingKind = "fleet_cut_off"
	FindingRelayMissing      FindingKind = "relay_missing"
	FindingRelayStalled      FindingKind = "relay_stalled"
	FindingRelayLate         FindingKind = "relay_late"
	FindingOriginDown        FindingKind = "origin_down"
	FindingCostDropped       FindingKind = "cost_dropped"
	FindingTableFull         FindingKind = "table_full"
	FindingSettingsRefused   FindingKind = "settings_refused"
	FindingNodeProblem       FindingKind = "node_problem"
	FindingTuningSkew        FindingKind = "tuning_skew"
	FindingTuningsDiffer     FindingKind = "tunings_differ"
	FindingClockSkew         FindingKind = "clock_skew"
	FindingCleanupLag        FindingKind = "cleanup_lag"
	FindingCleanupPaused     FindingKind = "cleanup_paused"
	FindingCleanupFails      FindingKind = "cleanup_fails"
	FindingCleanupBatches    FindingKind = "cleanup_in_batches"
	FindingCleanupPartitions FindingKind = "cleanup_partitions_missing"
	FindingRolloutTrouble    FindingKind = "rollout_trouble"
	FindingRolloutWaits      FindingKind = "rollout_waits"
	FindingRetirementTrouble FindingKind = "retirement_trouble"
	FindingRetirementWaits   FindingKind = "retirement_waits"
	FindingInvocationPaused  FindingKind = "invocation_paused"
	FindingInvocationBackoff FindingKind = "invocation_backing_off"
)

// FindingKinds lists all kinds.
var FindingKinds = []FindingKind{
	FindingMySQLDown, FindingRestateDown, FindingRestateAdminDown, FindingWatchLate,
	FindingNodesDead, FindingRegionDark, FindingFleetCutOff, FindingRelayMissing, FindingRelayStalled, FindingRelayLate,
	FindingOriginDown, FindingCostDropped, FindingTableFull, FindingSettingsRefused, FindingNodeProblem, FindingTuningSkew,
	FindingTuningsDiffer, FindingClockSkew,
	FindingCleanupLag, FindingCleanupPaused, FindingCleanupFails, FindingCleanupBatches, FindingCleanupPartitions,
	FindingRolloutTrouble,
	FindingRolloutWaits, FindingRetirementTrouble, FindingRetirementWaits, FindingInvocationPaused,
	FindingInvocationBackoff,
}

// settle is how long a state must last before it is a finding. The shorter states belong to a fleet's normal work.
var settle = map[FindingKind]time.Duration{
	FindingCleanupFails:      2 * time.Minute,    // a run that MySQL's restart ended; the next run succeeds
	FindingCleanupPartitions: 5 * time.Minute,    // the next run creates them, unless a transaction holds the table
	FindingTuningSkew:        2 * time.Minute,    // versions travel for a settings interval
	FindingTuningsDiffer:     2 * time.Minute,    // a rollout ends before nodes and rows are read again
	FindingRelayMissing:      fleet.UnrelayedMax, // another node takes over
	FindingInvocationBackoff: time.Minute,        // a step that fails once is tried again
	FindingWatchLate:         time.Minute,        // the schedule is started again within seconds
}

const (
	healthVersion = 1

	// findingsMax bounds a document: the worst findings stay.
	findingsMax = 100
)

// Finding is a problem that a person should look at.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	Subject  string      `json:"subject,omitempty"` // a region, a job, a rollout; with Kind it identifies the finding
	Severity Severity    `json:"severity"`
	What     string      `json:"what"`
	SinceMs  int64       `json:"since_ms"` // Unix ms; 0 in a look, which has no start
	Do       string      `json:"do"`
}

// Look has the state at a moment, without memory of earlier looks.
type Look struct {
	AtMs     int64     `json:"at_ms"`
	Findings []Finding `json:"findings,omitempty"`
	// Blind are kinds about which the look could read nothing: their earlier findings stay.
	Blind []FindingKind `json:"blind,omitempty"`
}

// HealthDocument is the health of the fleet and of its dependencies: one document, kept between looks so that findings
// have a start. Fields are only ever added.
type HealthDocument struct {
	Version  int       `json:"version"`
	AtMs     int64     `json:"at_ms"`
	Overall  Severity  `json:"overall"`
	Findings []Finding `json:"findings,omitempty"` // the worst first, then the oldest
	Settling []Finding `json:"settling,omitempty"` // seen, but not for long enough to be findings
	LeftOut  int       `json:"left_out,omitempty"`

	// Live reports whether this process computed the document for a single call, and not the watch on Restate.
	Live bool `json:"live,omitempty"`
}

// Next returns the document after a look. A finding that continues keeps its Since, which is never later than the look.
// Otherwise a clock that was ahead, and has been corrected, would hide the finding for as long as it was ahead.
func (d HealthDocument) Next(look Look) HealthDocument {
	before := map[[2]string]Finding{}
	for _, f := range slices.Concat(d.Settling, d.Findings) {
		before[f.id()] = f
	}
	told := map[[2]string]bool{}
	for _, f := range d.Findings {
		told[f.id()] = true
	}
	next := HealthDocument{Version: healthVersion, AtMs: look.AtMs, Overall: SeverityOK}
	seen := map[[2]string]bool{}
	take := func(f Finding) {
		if seen[f.id()] {
			return
		}
		seen[f.id()] = true
		if was, ok := before[f.id()]; ok {
			f.SinceMs = cmp.Or(was.SinceMs, f.SinceMs)
		}
		f.SinceMs = min(cmp.Or(f.SinceMs, look.AtMs), look.AtMs)
		if !told[f.id()] && time.Duration(look.AtMs-f.SinceMs)*time.Millisecond < settle[f.Kind] {
			next.Settling = append(next.Settling, f)
			return
		}
		next.Findings = append(next.Findings, f)
	}
	for _, f := range look.Findings {
		take(f)
	}
	for _, f := range slices.Concat(d.Findings, d.Settling) {
		if slices.Contains(look.Blind, f.Kind) {
			take(f)
		}
	}
	next.order()
	return next
}

// Check rejects a document of a newer build, because this build would drop its unknown fields when it writes the
// document back.
func (d HealthDocument) Check() error {
	if d.Version > healthVersion {
		return fmt.Errorf("%w: the health document has version %d and this build supports %d: run the newer weir-control",
			controlplane.ErrConflict, d.Version, healthVersion)
	}
	return nil
}

// order sorts and bounds the findings, and sets the overall severity.
func (d *HealthDocument) order() {
	slices.SortStableFunc(d.Findings, func(a, b Finding) int {
		return cmp.Or(b.Severity.rank()-a.Severity.rank(), cmp.Compare(a.SinceMs, b.SinceMs), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Subject, b.Subject))
	})
	if more := len(d.Findings) - findingsMax; more > 0 {
		d.Findings, d.LeftOut = d.Findings[:findingsMax], d.LeftOut+more
	}
	d.Settling = d.Settling[:min(len(d.Settling), findingsMax)]
	d.Overall = SeverityOK
	if len(d.Findings) > 0 && d.Findings[0].Severity != SeverityInfo {
		d.Overall = d.Findings[0].Severity
	}
}

func (f Finding) id() [2]string { return [2]string{string(f.Kind), f.Subject} }

func (s Severity) rank() int {
	return slices.Index([]Severity{SeverityOK, SeverityInfo, SeverityWarning, SeverityCritical}, s)
}
