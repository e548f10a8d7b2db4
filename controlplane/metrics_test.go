package controlplane_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/watch"
)

// "Counters start at 0 with the process and are there from its start."
func TestMetricsAreThereFromTheStart(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(controlplane.NewMetrics(), cleanup.NewMetrics(), watch.NewMetrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	want := []string{
		"weir_cleanup_batch_errors_total", "weir_cleanup_batch_seconds", "weir_cleanup_dead_nodes_deleted_total",
		"weir_cleanup_lag_seconds",
		"weir_cleanup_partition_rows_total", "weir_cleanup_partitions_busy_total", "weir_cleanup_partitions_dropped_total",
		"weir_cleanup_partitions_missing", "weir_cleanup_partitions_refused", "weir_cleanup_paused", "weir_cleanup_rows_deleted_total", "weir_cleanup_run_errors_total",
		"weir_cleanup_runs_total", "weir_cleanup_usage_deleted_total", "weir_control_auth_failures_total", "weir_control_chain_repairs_total", "weir_control_dependency_up", "weir_control_refused_total",
		"weir_fleet_tuning_versions", "weir_handlers_refused_total",
		"weir_retirement_awaiting_approval", "weir_retirement_rows_deleted_total", "weir_retirement_trouble", "weir_retirement_under_way", "weir_rollout_phase", "weir_rollout_trouble",
		"weir_watch_findings", "weir_watch_looked_at_seconds", "weir_watch_severity",
	}
	if !slices.Equal(names, want) {
		t.Errorf("metrics %v\nwant    %v", names, want)
	}
	readme, err := os.ReadFile("../restate/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(readme), "`"+name) {
			t.Errorf("restate/RUNBOOK.md does not say what %s means", name)
		}
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
