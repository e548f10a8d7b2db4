package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
)

// retirements is one retirement in memory. Each read moves it to the next of phases.
type retirements struct {
	one    *retire.Retirement
	phases []retire.Phase
	asked  string
	by     controlplane.By
	err    error
}

func (s *retirements) Start(_ context.Context, table string, spec retire.Spec, by controlplane.By) (retire.Retirement, error) {
	look := retire.Look{
		Table:  &retire.TableFigures{Rows: 12345, Mark: retire.TableMark{NextKey: 9, LastExpiryMs: now.UnixMilli() + 60_000}},
		Health: retire.Health{Regions: 2, Nodes: 4},
	}
	if err := retire.ValidateRetirable(table); err != nil {
		return retire.Retirement{}, err
	}
	r, err := retire.New(table, spec, by, look, now.UnixMilli())
	if err != nil {
		return retire.Retirement{}, err
	}
	s.one, s.by = r, by
	return *r, s.err
}

func (s *retirements) ask(what string, by controlplane.By) (retire.Retirement, error) {
	s.asked, s.by = what, by
	if s.one == nil {
		return retire.Retirement{}, fmt.Errorf("%w: it has never been retired", controlplane.ErrNotFound)
	}
	return *s.one, s.err
}

func (s *retirements) ApproveRename(_ context.Context, _ string, o retire.Order) (retire.Retirement, error) {
	return s.ask("rename", o.By)
}

func (s *retirements) ApproveDrop(_ context.Context, _ string, o retire.Order) (retire.Retirement, error) {
	return s.ask("drop", o.By)
}

func (s *retirements) Abort(_ context.Context, _ string, by controlplane.By) (retire.Retirement, error) {
	return s.ask("abort", by)
}

func (s *retirements) Status(context.Context, string) (retire.Retirement, error) {
	if len(s.phases) > 0 {
		s.one.Phase, s.phases = s.phases[0], s.phases[1:]
		if s.one.Phase.Over() {
			s.one.EndedMs = now.UnixMilli()
		}
	}
	return s.ask("status", controlplane.By{})
}

func (s *retirements) List(context.Context, string) ([]retire.Summary, error) {
	if s.one == nil {
		return nil, s.err
	}
	return []retire.Summary{s.one.Summary()}, s.err
}

func TestRetireStartAndStatus(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "retire", "history"), exitOK, "no retirement yet: see weirctl retire start --help\n")
	if code := w.run(t, "retire", "status"); code != exitFailure || !strings.Contains(w.stderr.String(), "it has never been retired") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	w.want(t, w.run(t, "retire", "start", "--soak", "48h", "--reason", "counts are shared"), exitOK, `
retirement of ratelimit_blocklist, observing
started      0s ago by os-user: counts are shared
other name   ratelimit_blocklist_retired_20260102_150405
quiet, soak  1d0h, 2d0h

EVIDENCE      checked 0s ago
last write    none since the start
quiet for     0s
rows left     12,345, the last of which expires at 2026-01-02 15:05:05Z
rows deleted  0
counts        healthy in 2 regions, 4 nodes, for 0s

Follow it with: weirctl retire status --watch
`)
	r := w.retirements.one
	r.Phase, r.RowsDeleted, r.Evidence.Rows, r.LastWriteMs = retire.AwaitingFinal, 12345, 0, now.Add(-time.Hour).UnixMilli()
	r.Rename = &retire.Decision{By: controlplane.By{Actor: "ann", Reason: "all is well"}, AtMs: now.Add(-time.Minute).UnixMilli()}
	r.Evidence.Problem, r.Trouble = "region us has no live node", "MySQL does not\nanswer"
	w.want(t, w.run(t, "retire", "status"), exitOK, `
retirement of ratelimit_blocklist, awaiting final approval: trouble, tried again: MySQL does not answer
started          0s ago by os-user: counts are shared
other name       ratelimit_blocklist_retired_20260102_150405
quiet, soak      1d0h, 2d0h
rename approved  1m ago by ann: all is well

EVIDENCE      checked 0s ago
last write    1h ago
quiet for     0s
rows left     0
rows deleted  12,345
counts        region us has no live node

Approve the drop, which cannot be undone, with: weirctl retire approve drop --evidence `+r.EvidenceHash()+` --reason TEXT
`)
	if code := w.run(t, "retire", "status", "-o", "json"); code != exitOK || !json.Valid(w.stdout.Bytes()) || !strings.Contains(w.stdout.String(), `"phase": "awaiting_final_approval"`) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	w.want(t, w.run(t, "retire", "history", "--events"), exitOK, `
AT                    BY       WHAT   
2026-01-02 15:04:05Z  os-user  start  counts are shared
`)
}

func TestRetireActions(t *testing.T) {
	w := newWorld(t)
	w.run(t, "retire", "start", "--reason", "x")
	for _, args := range [][]string{{"rename", "approve", "rename"}, {"drop", "approve", "drop", "--yes"}, {"abort", "abort"}} {
		code := w.run(t, append(append([]string{"retire"}, args[1:]...), "--reason", "because", "--actor", "ann")...)
		if code != exitOK || w.retirements.asked != args[0] || w.retirements.by != (controlplane.By{Actor: "ann", Reason: "because"}) {
			t.Errorf("%v: exit %d, %s by %+v, %s", args, code, w.retirements.asked, w.retirements.by, w.stderr.String())
		}
	}
	for says, args := range map[string][]string{
		"must be one of": {"approve", "both", "--reason", "x"},
		"missing flags":  {"approve", "drop"},
		// without tokens the API cannot distinguish people
		"approvers is 2":                  {"start", "--approvers", "2", "--reason", "x"},
		"--quiet is 1ms (100ms to 2160h)": {"start", "--quiet", "1ms", "--reason", "x"},
		`--table is "mine" (`:             {"start", "--table", "mine", "--reason", "x"},
	} {
		if code := w.run(t, append([]string{"retire"}, args...)...); code != exitUsage || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%v: exit %d, %s", args, code, w.stderr.String())
		}
	}
	w.retirements.err = fmt.Errorf("%w: the evidence does not hold any more", controlplane.ErrConflict)
	if code := w.run(t, "retire", "approve", "rename", "--reason", "x"); code != exitFailure || !strings.Contains(w.stderr.String(), "does not hold") || !strings.Contains(w.stderr.String(), "The request was refused. See weirctl retire status.") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// "status --watch": a line a move, until it is over; the exit code is the outcome.
func TestRetireWatch(t *testing.T) {
	w := newWorld(t)
	w.run(t, "retire", "start", "--reason", "x")
	w.retirements.phases = []retire.Phase{retire.Draining, retire.Draining, retire.Awaiting, retire.Dropped}
	w.want(t, w.run(t, "retire", "status", "--watch", "--every", "10ms", "--timeout", "1ns"), exitOK, `
2026-01-02 15:04:05Z  draining
2026-01-02 15:04:05Z  awaiting approval
2026-01-02 15:04:05Z  dropped
`)
	w.retirements.one.EndedMs, w.retirements.one.Why = 0, "aborted by ann: x"
	w.retirements.phases = []retire.Phase{retire.Restoring, retire.Aborted}
	w.want(t, w.run(t, "retire", "status", "--watch", "--every", "10ms"), exitFailure, `
2026-01-02 15:04:05Z  restoring: aborted by ann: x
2026-01-02 15:04:05Z  aborted by ann: x
`)
	if want := "weirctl: the retirement of ratelimit_blocklist is aborted by ann: x\nWhat happened: weirctl retire history --events.\n"; w.stderr.String() != want {
		t.Errorf("%q", w.stderr.String())
	}
	w.want(t, w.run(t, "retire", "history"), exitOK, `
STARTED               BY       REASON  TOOK  RESULT
2026-01-02 15:04:05Z  os-user  x       0s    aborted by ann: x
`)
}
