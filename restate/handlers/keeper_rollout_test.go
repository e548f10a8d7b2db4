package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// rolloutsOf returns a Restate that has a lock and some rollouts.
func rolloutsOf(t *testing.T, standing rollout.Lock, rollouts map[string]rollout.Rollout) *scripted {
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	return &scripted{asked: map[string]int{}, known: true, answer: func(path string) (int, string) {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		r, known := rollouts[parts[min(1, len(parts)-1)]]
		switch {
		case path == "/"+RolloutsService+"/"+rolloutScope+"/Standing":
			return http.StatusOK, text(standing)
		case path == "/"+RolloutsService+"/"+rolloutScope+"/Repair":
			return http.StatusOK, ""
		case parts[0] == RolloutService && strings.HasSuffix(path, "/Status") && known && r.ID == "":
			return http.StatusInternalServerError, `{"message":"broken"}`
		case parts[0] == RolloutService && strings.HasSuffix(path, "/Status") && known:
			return http.StatusOK, text(r)
		case parts[0] == RolloutService && strings.HasSuffix(path, "/Ensure"):
			return http.StatusOK, ""
		}
		return http.StatusNotFound, `{"message":"not found"}`
	}}
}

// The keeper's action depends on the lock, the rollout and how late the rollout is. It does nothing to a rollout in
// time, and checks each of several rollouts.
func TestWhatTheKeeperDoesAboutRollouts(t *testing.T) {
	const graceMs, lateMs = 10_000, rolloutLate * 10_000
	broken := rollout.Rollout{}
	for name, c := range map[string]struct {
		standing rollout.Lock
		rollout  func(nowMs int64) rollout.Rollout
		traces   error
		saved    int64 // of its row; 0: it has none
		ensured  bool
		repaired bool
		wrong    string
	}{
		"its timer is late":     {standing: rollout.Lock{Active: "one"}, rollout: bakesSince(lateMs + 1), ensured: true},
		"its timer may come":    {standing: rollout.Lock{Active: "one"}, rollout: bakesSince(lateMs)},
		"its outcome is late":   {standing: rollout.Lock{Active: "one"}, rollout: doneSince(lateMs + 1), ensured: true},
		"its outcome may come":  {standing: rollout.Lock{Active: "one"}, rollout: doneSince(lateMs)},
		"another has the lock":  {standing: rollout.Lock{Active: "gone"}, rollout: bakesSince(lateMs + 1), repaired: true},
		"it has no lock":        {rollout: bakesSince(lateMs + 1), saved: 1, repaired: true},
		"Restate has it older":  {standing: rollout.Lock{Active: "one"}, rollout: bakesSince(lateMs + 1), saved: 1, ensured: true, repaired: true},
		"it is not known":       {standing: rollout.Lock{Active: "gone"}, rollout: bakesSince(0), repaired: true},
		"it cannot be read":     {standing: rollout.Lock{Active: "one"}, rollout: func(int64) rollout.Rollout { return broken }, wrong: "broken"},
		"MySQL does not answer": {standing: rollout.Lock{Active: "gone"}, rollout: bakesSince(0), traces: errors.New("no rows today"), repaired: true, wrong: "compare the rollouts with MySQL: no rows today"},
		"MySQL alone is down":   {standing: rollout.Lock{Active: "one"}, rollout: bakesSince(0), traces: errors.New("no rows today"), wrong: "no rows today"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				restate := rolloutsOf(t, c.standing, map[string]rollout.Rollout{"one": c.rollout(time.Now().UnixMilli())})
				k := &Keeper{
					Client: NewClient(&http.Client{Transport: restate}, testKeys, "http://restate"), Grace: graceMs * time.Millisecond,
					Metrics: controlplane.NewMetrics(), Log: slog.New(slog.DiscardHandler),
					Rollouts: func(context.Context, int) (traces []rollout.Trace, err error) {
						if c.saved > 0 {
							traces = []rollout.Trace{{Summary: rollout.Summary{ID: "one", Phase: rollout.Baking}, Saved: c.saved}}
						}
						return traces, c.traces
					},
				}
				for range 2 {
					if err := k.ensureRollout(t.Context()); (err != nil) != (c.wrong != "") || !strings.Contains(fmt.Sprint(err), c.wrong) {
						t.Errorf("error %v, want %q", err, c.wrong)
					}
				}
				ensured, repaired := restate.asked["/"+RolloutService+"/one/Ensure"], restate.asked["/"+RolloutsService+"/"+rolloutScope+"/Repair"]
				if (ensured == 2) != c.ensured || (ensured > 0) != c.ensured || (repaired > 0) != c.repaired {
					t.Errorf("ensured %d times, repaired %d times", ensured, repaired)
				}
				told := float64(repaired)
				if c.ensured {
					told++ // once, in both rounds
				}
				if got := metric(t, k.Metrics, "weir_control_chain_repairs_total", ""); got != told {
					t.Errorf("weir_control_chain_repairs_total is %v, want %v", got, told)
				}
			})
		})
	}
}

// bakesSince returns a rollout whose timer is late by lateMs.
func bakesSince(lateMs int64) func(int64) rollout.Rollout {
	return func(nowMs int64) rollout.Rollout {
		r := rollout.Rollout{Version: 2, ID: "one", Phase: rollout.Baking}
		r.Epoch, r.TimerMs, r.MovedMs = 7, nowMs-lateMs, nowMs-lateMs
		return r
	}
}

// doneSince returns a rollout whose outcome is late by lateMs.
func doneSince(lateMs int64) func(int64) rollout.Rollout {
	return func(nowMs int64) rollout.Rollout {
		return rollout.Rollout{Version: 2, ID: "one", Phase: rollout.Done, EndedMs: nowMs - lateMs}
	}
}
