package rollout

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

func TestSpecRefusals(t *testing.T) {
	good := spec(canary, all)
	for words, change := range map[string]func(*Spec){
		"floor is 2":                                 func(s *Spec) { s.Tuning = `{"floor":2}` },
		"the plan has 0 stages (1 to 20)":            func(s *Spec) { s.Plan.Stages = nil },
		"stage 1: invalid: want exactly one of":      func(s *Spec) { s.Plan.Stages[0].All = true },
		"stage 1 covers all regions and is not":      func(s *Spec) { s.Plan.Stages = []plan.Stage{all, all} },
		"share_percent is 101 (1 to 100)":            func(s *Spec) { s.Plan.Stages[0] = plan.Stage{SharePercent: 101} },
		"bake_ms is 99 (100 to 604800000)":           func(s *Spec) { s.Plan.Stages[1].BakeMs = 99 },
		"baseline_ms is -1 (0 to 3600000)":           func(s *Spec) { s.Plan.BaselineMs = -1 },
		"apply_timeout_ms is 999 (1000 to 86400000)": func(s *Spec) { s.Plan.ApplyTimeoutMs = 999 },
		"lease_ms is 45000 ms (at least 72000 ms with settings_interval_ms 10000": func(s *Spec) {
			s.Tuning, s.Plan.LeaseMs = controltest.Document("settings_interval_ms=10000"), 45_000
		},
		"apply_timeout_ms is 11999 ms (at least 12000 ms with settings_interval_ms 5000": func(s *Spec) { s.Plan.ApplyTimeoutMs = 11_999 },
		"settings_interval_ms is 600000 (at most 25000": func(s *Spec) {
			s.Tuning = strings.Replace(s.Tuning, `"settings_interval_ms":5000`, `"settings_interval_ms":600000`, 1)
		},
		"guardrail rows_per_second: factor is 0.5": func(s *Spec) { s.Plan.Guardrails.RowsPerSecond.Factor = 0.5 },
		"guardrail latency_us: least is -1":        func(s *Spec) { s.Plan.Guardrails.LatencyUs.Least = -1 },
		"denied_share_shift is 1.1 (0 to 1)":       func(s *Spec) { s.Plan.Guardrails.DeniedShareShift = 1.1 },
		"nodes_lost_share is -0.1 (0 to 1)":        func(s *Spec) { s.Plan.Guardrails.NodesLostShare = -0.1 },
		"restarts_per_hour is 11 (0 to 10)":        func(s *Spec) { s.Plan.Guardrails.RestartsPerHour = 11 },
		`stage 1: region "mars" has no live node`:  func(s *Spec) { s.Plan.Stages[0].Regions = []string{"mars"} },
	} {
		bad := good
		bad.Plan.Stages = slices.Clone(good.Plan.Stages)
		change(&bad)
		_, err := New("r1", bad, controltest.Ann, []string{"eu", "us"}, 1)
		controltest.WantInvalid(t, err, words)
	}
	for _, id := range []string{"", "a/b", "a b", strings.Repeat("x", 65)} {
		if _, err := New(id, good, controltest.Ann, []string{"eu"}, 1); !errors.Is(err, controlplane.ErrInvalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	if _, err := New("r1", good, controlplane.By{}, []string{"eu"}, 1); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("by nobody: %v", err)
	}
}

// State documents have a version: a document of a newer build is left unchanged.
func TestADocumentOfANewerBuild(t *testing.T) {
	if err := (&Rollout{Version: documentVersion}).Check(); err != nil {
		t.Error(err)
	}
	if err := (&Rollout{Version: limitsVersion + 1}).Check(); err == nil || !strings.Contains(err.Error(), "run the newer weir-control") {
		t.Error(err)
	}
}
