package dataplane_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/metrics"
)

// A full table is logged once a period, with the namespace that fills it. Metrics, the heartbeat and TableFull report
// it while keys find no room, and for a minute after.
func TestAFullTableIsReported(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) {
		c.EntriesMax, c.Logger = fullCap, slog.New(slog.NewTextHandler(&log, nil))
	})
	n.take("first", 1, 10)
	n.ReportFull()
	if h := n.Health(); n.TableFull() || h.TableFull != 0 || !h.TableFullAt.IsZero() || log.Len() != 0 {
		t.Fatalf("before: full %v, %+v, %q", n.TableFull(), h, log.String())
	}
	n.pin("flood", 0, 2*fullCap)
	for range 3 {
		n.ReportFull()
		n.pin("flood", 2*fullCap, 2*fullCap+10)
	}
	if got := strings.Count(log.String(), "the table is full"); got != 1 {
		t.Errorf("%d lines: %s", got, log.String())
	}
	if !strings.Contains(log.String(), "largest_workspace=acme largest_namespace=flood") {
		t.Errorf("who fills it is not in %s", log.String())
	}
	if h := n.Health(); !n.TableFull() || h.TableFull < fullCap || !h.TableFullAt.Equal(epoch) {
		t.Errorf("full %v, %d at %v", n.TableFull(), h.TableFull, h.TableFullAt)
	}
	want := `
# HELP weir_untracked_decisions_total Decisions on keys without room in the table, by the counter that decided: the origin, or the overflow sketch, which errs towards denying.
# TYPE weir_untracked_decisions_total counter
weir_untracked_decisions_total{by="origin"} 1031
weir_untracked_decisions_total{by="overflow"} 0
`
	if err := testutil.CollectAndCompare(metrics.New(n.Limiter), strings.NewReader(want), "weir_untracked_decisions_total"); err != nil {
		t.Error(err)
	}
	w.clock.advance(time.Minute)
	n.ReportFull()
	if got := strings.Count(log.String(), "the table is full"); got != 2 || n.TableFull() {
		t.Errorf("%d lines after a minute; full %v", got, n.TableFull())
	}
	n.ReportFull()
	if got := strings.Count(log.String(), "the table is full"); got != 2 {
		t.Errorf("%d lines though nothing is new", got)
	}
}
