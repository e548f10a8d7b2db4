package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/shared/await"
)

// 20 concurrent Starts leave one chain, and it survives a kill -9 of Restate.
func TestTwentyStartsLeaveOneChain(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	var starts sync.WaitGroup
	for i := range 20 {
		starts.Go(func() {
			call := c.client.Start
			if i%2 == 1 {
				call = c.client.Ensure
			}
			if _, err := call(t.Context(), "n", 250*time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	oneChain := func() {
		t.Helper()
		before := c.status("n")
		await.NoError(t, "three more runs", n.reached(n.count()+3))
		if ids := c.ticks("n"); len(ids) > 1 {
			t.Errorf("%d chains: %v", len(ids), ids)
		}
		if after := c.status("n"); after.Generation != before.Generation {
			t.Errorf("generation %d, then %d", before.Generation, after.Generation)
		}
	}
	oneChain()
	if s := c.status("n"); s.Generation != 1 {
		t.Errorf("20 starts began %d chains", s.Generation)
	}
	c.crash()
	oneChain()
	s := c.status("n")
	slots := map[int64]int{} // by the time at which ticks were accepted, because their runs can be late
	for _, run := range s.History {
		if slots[(run.StartedMs-s.SlotMs%s.IntervalMs)/s.IntervalMs]++; run.Trigger != cleanup.TriggerSchedule {
			t.Errorf("%+v", run)
		}
	}
	for slot, ticks := range slots {
		if ticks > 1 {
			t.Errorf("%d ticks were taken in the slot of %d ms", ticks, slot*s.IntervalMs)
		}
	}
}

// A single run makes up for all missed ticks, and later ticks keep to the grid.
func TestMissedSlotsCoalesce(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	const interval = 150 * time.Millisecond
	if _, err := c.client.Start(t.Context(), "n", interval); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "two runs", n.reached(2))
	c.down()
	var before State // from Restate, because the handlers that return the status are down
	if err := json.Unmarshal([]byte(c.state(CronService, "n", stateKey)), &before); err != nil {
		t.Fatal(err)
	}
	missed := before.SlotMs + 6*interval.Milliseconds()
	await.NoError(t, "six missed slots", func() error {
		if left := missed - time.Now().UnixMilli(); left > 0 {
			return fmt.Errorf("%d ms to go", left)
		}
		return nil
	})
	down := n.count()
	c.up()
	await.NoError(t, "a run after the outage", n.reached(down+1))
	var after State
	await.NoError(t, "the missed slots are behind it", func() error {
		if after = c.status("n"); after.SlotMs <= missed {
			return fmt.Errorf("the next slot is %d ms before the last one that was missed", missed-after.SlotMs)
		}
		return nil
	})
	// A tick that was under way when the handlers stopped is accepted for its own slot, and the next tick for all other
	// slots.
	ticks, slots := after.Sequence-before.Sequence, (after.SlotMs-before.SlotMs)/interval.Milliseconds()
	if slots-ticks < 5 {
		t.Errorf("%d ticks for %d slots: the missed ones were run one by one", ticks, slots)
	}
	if off := (after.SlotMs - before.SlotMs) % interval.Milliseconds(); off != 0 {
		t.Errorf("the grid has moved by %d ms", off)
	}
}

// A run that stopped at its bound is followed by the next run at once; later ticks keep to the grid.
func TestWorkLeftBehindIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job {
		job := n.job(s)
		run := job.Run
		job.Run = func(ctx restate.ObjectContext) (Report, error) {
			r, err := run(ctx)
			left, err2 := controlplane.Do(s.on(ctx), "is work left", func(context.Context) (bool, error) { return n.count() < 4, nil })
			r.More = left
			return r, errors.Join(err, err2)
		}
		return map[string]Job{"n": job}
	})
	first, err := c.client.Start(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var s State
	await.NoError(t, "four runs in a row", func() error {
		if s = c.status("n"); s.Runs != 4 {
			return fmt.Errorf("%d runs", s.Runs)
		}
		return nil
	})
	if want := first.SlotMs + time.Hour.Milliseconds(); s.SlotMs != want || s.DueMs != want || !s.Running {
		t.Errorf("slot %d, due %d, running %v; want %d", s.SlotMs, s.DueMs, s.Running, want)
	}
	if ids := c.ticks("n"); len(ids) != 1 || ids[0] != s.NextTick {
		t.Errorf("ticks %v, want %s alone", ids, s.NextTick)
	}
}

// Only Resume ends a pause: not Ensure, a restart or a new configuration. The audit log has every change with its actor
// and reason.
func TestPause(t *testing.T) {
	t.Parallel()
	var n counter
	log := &auditRows{}
	c := newCluster(t, Options{Audit: log}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	const interval = 150 * time.Millisecond
	if _, err := c.client.Ensure(t.Context(), "n", interval); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "a run", n.reached(1))
	paused, err := c.client.Pause(t.Context(), "n", operator)
	if err != nil || paused.Running || paused.Pause == nil || paused.Pause.By != operator || paused.DueMs != 0 {
		t.Fatalf("%+v, %v", paused, err)
	}
	runs := n.count()
	if again, err := c.client.Pause(t.Context(), "n", controlplane.By{Actor: "bob", Reason: "me too"}); err != nil || again.Pause.By != operator {
		t.Errorf("paused twice: %+v, %v", again.Pause, err)
	}
	stillPaused := func(after string, s State, err error) {
		t.Helper()
		if err != nil || s.Running || s.Pause == nil || s.Generation != paused.Generation {
			t.Errorf("after %s: %+v, %v", after, s, err)
		}
	}
	s, err := c.client.Start(t.Context(), "n", interval)
	stillPaused("Start", s, err)
	s, err = c.client.Ensure(t.Context(), "n", 2*interval)
	stillPaused("Ensure with another interval", s, err)
	c.down()
	c.crash()
	c.up()
	k := c.keeper(map[string]time.Duration{"n": interval})
	if err := k.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	stillPaused("a restart of everything", c.status("n"), nil)
	if ids := c.ticks("n"); len(ids) != 0 {
		t.Errorf("ticks on their way: %v", ids)
	}
	if n.count() != runs {
		t.Errorf("%d runs while paused", n.count()-runs)
	}

	run, err := c.client.TriggerNow(t.Context(), "n", controlplane.By{Actor: "eve", Reason: "by hand"})
	if err != nil || run.Trigger != "eve" || run.Error != "" || run.Report.Counts["runs"] != 1 || n.count() != runs+1 {
		t.Errorf("a run by hand: %+v, %v", run, err)
	}
	stillPaused("a run by hand", c.status("n"), nil)

	resumed, err := c.client.Resume(t.Context(), "n", operator)
	if err != nil || !resumed.Running || resumed.Pause != nil {
		t.Fatalf("%+v, %v", resumed, err)
	}
	if again, err := c.client.Resume(t.Context(), "n", operator); err != nil || again.Generation != resumed.Generation {
		t.Errorf("resumed twice: %+v, %v", again, err)
	}
	await.NoError(t, "it runs again", n.reached(runs+3))

	await.NoError(t, "three audit rows", func() error {
		if rows := log.all(); len(rows) != 3 {
			return fmt.Errorf("%+v", rows)
		}
		return nil
	})
	byAction := map[string]audit.Entry{}
	for _, e := range log.all() {
		byAction[e.Action] = e
	}
	for action, want := range map[string]struct{ actor, before, after string }{
		"n.pause":  {"ann", `"running":true`, `"reason":"deploy"`},
		"n.run":    {"eve", ``, `"trigger":"eve"`},
		"n.resume": {"ann", `"running":false`, `"running":true`},
	} {
		e := byAction[action]
		if e.Actor != want.actor || e.Subject != "job n" || !strings.Contains(e.Before, want.before) || !strings.Contains(e.After, want.after) {
			t.Errorf("%s: %+v", action, e)
		}
	}
}

// "A job's error is recorded and not returned", whether the job failed or a step failed for its whole retry time.
func TestErrorsAreRecorded(t *testing.T) {
	t.Parallel()
	finished := make(chan bool, 100)
	c := newCluster(t, Options{StepRetryMax: 300 * time.Millisecond}, func(s *stepper) map[string]Job {
		return map[string]Job{"n": {
			Run: func(ctx restate.ObjectContext) (Report, error) {
				_, err := controlplane.Do(s.on(ctx), "fail", func(context.Context) (int, error) { return 0, errors.New("table is gone") })
				return Report{Counts: map[string]int64{"rows": 3}, More: true}, err
			},
			Finished: func(failed bool) { finished <- failed },
		}}
	})
	run, err := c.client.TriggerNow(t.Context(), "n", operator)
	if err != nil || run.Error != "table is gone" || run.Report.Counts["rows"] != 3 || run.Report.More {
		t.Errorf("%+v, %v", run, err)
	}
	if failed := <-finished; !failed {
		t.Error("the job was not told of its failure")
	}
	if _, err := c.client.Start(t.Context(), "n", intervalMin); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the chain goes on after errors", func() error {
		if s := c.status("n"); s.Errors < 3 || s.History[0].Trigger != cleanup.TriggerSchedule {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// Requests through the ingress are validated by the handlers too, and Tick cannot be called through it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	for name, tc := range map[string]struct {
		call func() error
		is   error
		says string
	}{
		"pause by nobody": {func() error { _, err := c.client.Pause(t.Context(), "n", controlplane.By{Reason: "x"}); return err },
			controlplane.ErrInvalid, "pause of job n: invalid: actor is empty (1 to 191 bytes)"},
		"resume without a reason": {func() error { _, err := c.client.Resume(t.Context(), "n", controlplane.By{Actor: "x"}); return err },
			controlplane.ErrInvalid, "reason is empty (1 to 500 bytes)"},
		"run by nobody": {func() error { _, err := c.client.TriggerNow(t.Context(), "n", controlplane.By{}); return err },
			controlplane.ErrInvalid, "actor is empty"},
		"interval too short": {func() error { _, err := c.client.Start(t.Context(), "n", time.Millisecond); return err },
			controlplane.ErrInvalid, "interval_ms is 1 (100 to 86400000)"},
		"interval too long": {func() error { _, err := c.client.Ensure(t.Context(), "n", 25*time.Hour); return err },
			controlplane.ErrInvalid, "interval_ms is 90000000 (100 to 86400000)"},
		"unknown job": {func() error { _, err := c.client.Status(t.Context(), "x"); return err },
			nil, `there is no job "x"`},
		"a tick from outside": {func() error {
			_, err := request[Tick, restate.Void](t.Context(), c.client, "n", "Tick", Tick{})
			return err
		},
			controlplane.ErrConflict, "passes on no call of WeirCron/Tick"},
	} {
		err := tc.call()
		if err == nil || !strings.Contains(err.Error(), tc.says) || (tc.is != nil && !errors.Is(err, tc.is)) {
			t.Errorf("%s: %v; want %q", name, err, tc.says)
		}
	}
	if s := c.status("n"); s.Version != 0 || n.count() != 0 {
		t.Errorf("a refusal left state: %+v", s)
	}
}
