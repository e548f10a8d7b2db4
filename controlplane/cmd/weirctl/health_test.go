package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/watch"
)

// Findings have their time and the next step. The worst finding sets the exit code.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	w.health = watch.HealthDocument{Overall: watch.SeverityOK, AtMs: now.Add(-4 * time.Second).UnixMilli()}
	w.want(t, w.run(t, "health"), exitOK, "ok, checked 4s ago\n")
	w.health = watch.HealthDocument{Overall: watch.SeverityCritical, AtMs: now.UnixMilli(), Live: true, LeftOut: 1, Findings: []watch.Finding{
		{Kind: watch.FindingRegionDark, Subject: "eu", Severity: watch.SeverityCritical, What: "no node of eu is heard of", SinceMs: now.Add(-time.Minute).UnixMilli(), Do: "Look."},
		{Kind: watch.FindingMySQLDown, Severity: watch.SeverityWarning, What: "a\nb", SinceMs: now.UnixMilli(), Do: "Start it."},
	}}
	w.want(t, w.run(t, "health"), exitCritical, `
critical, checked 0s ago
The watch on Restate has no recent result: weir-control checked for this call.

critical  region_dark eu, since 2026-01-02 15:03:05Z (1m ago)
  no node of eu is heard of
  -> Look.

warning  mysql_down, since 2026-01-02 15:04:05Z (0s ago)
  a b
  -> Start it.

1 finding not shown: an answer holds no more.
`)
	w.health.Overall = watch.SeverityWarning
	if code := w.run(t, "health", "-o", "json"); code != exitWarning || !json.Valid(w.stdout.Bytes()) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// doctor prints the checks as a table, and the next step for checks that are not ok.
func TestDoctor(t *testing.T) {
	w := newWorld(t)
	w.checks = []watch.Check{{Area: "mysql", Name: "version", Result: watch.CheckOK, What: "10.11"}}
	w.want(t, w.run(t, "doctor"), exitOK, `
RESULT  AREA   CHECK    FOUND
ok      mysql  version  10.11
`)
	w.checks = append(w.checks, watch.Check{Area: "redis", Name: "eviction", Result: watch.CheckWarn, What: "allkeys-lru", Do: "CONFIG SET maxmemory-policy noeviction."})
	w.want(t, w.run(t, "doctor"), exitWarning, `
RESULT  AREA   CHECK     FOUND
ok      mysql  version   10.11
warn    redis  eviction  allkeys-lru

warn  redis, eviction
  -> CONFIG SET maxmemory-policy noeviction.
`)
	w.checks = append(w.checks, watch.Check{Area: "mysql", Name: "x", Result: watch.CheckFail, What: "y", Do: "z"})
	if code := w.run(t, "doctor", "-o", "json"); code != exitCritical || !json.Valid(w.stdout.Bytes()) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// interrupter ends a run when a word is written for the nth time.
type interrupter struct {
	bytes.Buffer
	word string
	left int
	end  context.CancelFunc
}

func (i *interrupter) Write(b []byte) (int, error) {
	if i.left -= strings.Count(string(b), i.word); i.left <= 0 {
		i.end()
	}
	return i.Buffer.Write(b)
}

// --watch repeats until it is interrupted, and ends with the result of the last look. An error at the first look ends
// it immediately.
func TestWatchLooksAgain(t *testing.T) {
	w := newWorld(t)
	w.fleet = fleet.Fleet{}
	w.health = watch.HealthDocument{Overall: watch.SeverityWarning, AtMs: now.UnixMilli()}
	for word, tc := range map[string]struct {
		args []string
		code int
	}{
		"checked":     {[]string{"health"}, exitWarning},
		"no node has": {[]string{"fleet"}, exitOK},
		"not started": {[]string{"cleanup", "status"}, exitOK},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &interrupter{word: word, left: 3, end: cancel}
		code := run(ctx, append([]string{"--api", w.url}, append(tc.args, "--watch", "--every", "10ms")...), terminal{stdout: out, stderr: &w.stderr, now: func() time.Time { return now }})
		cancel()
		if n := strings.Count(out.String(), word); code != tc.code || n < 3 || strings.Count(out.String(), "2026-01-02 15:04:05Z\n") < 2 {
			t.Errorf("%v: exit %d, %d looks\n%s", tc.args, code, n, out.String())
		}
	}
	w.schedule.err = fmt.Errorf("%w: away", controlplane.ErrUnavailable)
	if code := w.run(t, "fleet", "--watch"); code != exitUnavailable {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	w.schedule.err = errors.New("odd")
	if code := w.run(t, "fleet", "--watch"); code != exitFailure {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}
