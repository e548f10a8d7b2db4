package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

// shelf stores an override, a namespace and a token in memory.
type shelf struct {
	override  limits.Override
	seen      *int64 // the override that is to be deleted
	namespace limits.Namespace
	by        controlplane.By
	reset     limits.Reset
	secret    string           // the required token
	valid     *workspaces.Set  // that it is valid for
	names     []string         // workspaces of the last token that was made
	lives     [2]time.Duration // overlap and expiresIn of the last change of a token
	older     bool             // its namespaces have no windows
}

func (s *shelf) SetOverride(_ context.Context, o limits.Override, by controlplane.By) error {
	o.UpdatedAt = now
	s.override, s.by = o, by
	return o.Validate()
}

func (s *shelf) ChangeOverride(_ context.Context, workspace, namespace, pattern string, change limits.OverrideChange, by controlplane.By) (limits.Override, error) {
	s.override.Workspace, s.override.Namespace, s.override.Pattern, s.override.UpdatedAt, s.by = workspace, namespace, pattern, now, by
	for to, from := range map[*int64]*int64{&s.override.Limit: change.Limit, &s.override.DurationMs: change.DurationMs, &s.override.Candidate: change.Candidate} {
		if from != nil {
			*to = *from
		}
	}
	if change.Shadow != nil {
		s.override.Shadow = *change.Shadow
	}
	return s.override, s.override.Validate()
}

func (s *shelf) Override(context.Context, string, string, string) (limits.Override, error) {
	return s.override, nil
}

func (s *shelf) DeleteOverride(_ context.Context, _, _, _ string, seen *int64, by controlplane.By) error {
	s.seen, s.by = seen, by
	if seen != nil && *seen != s.override.UpdatedAt.UnixMilli() {
		return fmt.Errorf("%w: the override was changed meanwhile", controlplane.ErrConflict)
	}
	return nil
}

func (s *shelf) Overrides(context.Context, string, string, string) ([]limits.Override, bool, error) {
	return []limits.Override{s.override}, true, nil
}

func (s *shelf) AllOverrides(context.Context, *workspaces.Set, limits.OverrideName) ([]limits.Override, bool, error) {
	return nil, false, nil
}

func (s *shelf) AllNamespaces(context.Context, *workspaces.Set, string, string) ([]limits.Namespace, bool, error) {
	return nil, false, nil
}

func (s *shelf) SetNamespace(_ context.Context, workspace, namespace string, change limits.NamespaceChange, by controlplane.By) (limits.Namespace, error) {
	s.namespace, s.by = limits.DefaultNamespace(workspace, namespace), by
	if change.Shadow != nil {
		s.namespace.Shadow = *change.Shadow
	}
	if change.Outage != nil {
		s.namespace.Outage = *change.Outage
	}
	switch {
	case s.older:
		s.namespace.Window = ""
	case change.Window != nil:
		s.namespace.Window = *change.Window
	}
	return s.namespace, nil
}

func (s *shelf) Namespaces(_ context.Context, _, after string) ([]limits.Namespace, bool, error) {
	if after == s.namespace.Namespace {
		return nil, false, nil
	}
	return []limits.Namespace{s.namespace}, after == "aaa", nil
}

func (s *shelf) Namespace(context.Context, string, string) (limits.Namespace, error) {
	return s.namespace, nil
}

func (s *shelf) Authenticate(_ context.Context, secret string) (access.Identity, error) {
	if secret != s.secret {
		return access.Identity{}, access.ErrUnauthenticated
	}
	return access.Identity{Name: "bot", Role: access.RoleOperator, Workspaces: s.valid}, nil
}

func (s *shelf) Holder(ctx context.Context, hash access.TokenHash) (access.Identity, error) {
	if hash != access.HashToken(s.secret) {
		return access.Identity{}, access.ErrUnauthenticated
	}
	return s.Authenticate(ctx, s.secret)
}

func (s *shelf) Create(_ context.Context, name string, role access.Role, expiresIn time.Duration, by controlplane.By, names ...string) (string, error) {
	s.names = names
	s.by, s.lives = by, [2]time.Duration{0, expiresIn}
	return "weir_" + name + "_" + string(role), nil
}

func (s *shelf) Rotate(_ context.Context, name string, overlap, expiresIn time.Duration, by controlplane.By) (string, error) {
	s.by, s.lives = by, [2]time.Duration{overlap, expiresIn}
	return "weir_new_" + name, nil
}

func (s *shelf) Revoke(_ context.Context, _ string, by controlplane.By) error {
	s.by = by
	return nil
}

func (s *shelf) List(_ context.Context, after string) ([]access.Token, bool, error) {
	if after == "old" {
		return nil, false, nil
	}
	two, err := workspaces.New("acme", "beta")
	return []access.Token{{Name: "ci", Role: access.RoleViewer, Workspaces: two, CreatedBy: "ann", CreatedAt: now}, {Name: "old", Role: access.RoleAdmin, CreatedBy: "ann", CreatedAt: now, RevokedAt: now}}, after == "aaa", err
}

func (s *shelf) ResetKey(_ context.Context, workspace, namespace, identifier string, longest time.Duration, by controlplane.By) (limits.Reset, error) {
	s.by = by
	s.reset = limits.Reset{Workspace: workspace, Namespace: namespace, Identifier: identifier, Generation: 2, SetAt: now, ExpiresAt: now.Add(2 * longest)}
	return s.reset, nil
}

func (s *shelf) Resets(context.Context, string, string) ([]limits.Reset, error) {
	return []limits.Reset{s.reset}, nil
}

func TestOverrideCommands(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "override", "set", "acme", "api", "user_*", "--limit", "0", "--duration", "1m", "--candidate", "7", "--shadow", "--reason", "abuse"), exitOK, "set: limit 0 (blocks), window 1m, candidate 7, shadow; nodes have it within two settings_interval_ms, about 10s unless tuned\n")
	if o := w.shelf.override; o.Pattern != "user_*" || o.Limit != 0 || o.DurationMs != 60_000 || o.Candidate != 7 || !o.Shadow || w.shelf.by != (controlplane.By{Actor: "os-user", Reason: "abuse"}) {
		t.Errorf("%+v by %+v", o, w.shelf.by)
	}
	w.want(t, w.run(t, "override", "list", "acme", "api"), exitOK, `
PATTERN  LIMIT       DURATION  CANDIDATE  SHADOW  SET
user_*   0 (blocks)  1m        7          yes     2026-01-02 15:04:05Z

There are more: --after "user_*"
`)
	for _, step := range []struct{ flags, want string }{ // a flag that is not set keeps the stored value
		{"--limit 2000", "limit 2,000, window 1m, candidate 7, shadow"},
		{"--no-shadow", "limit 2,000, window 1m, candidate 7"},
		{"--candidate 0", "limit 2,000, window 1m"},
		{"--duration 0", "limit 2,000, window of the request"},
		{"--shadow --candidate 9", "limit 2,000, window of the request, candidate 9, shadow"},
		{"--unlimited", "limit unlimited, window of the request, candidate 9, shadow"},
	} {
		args := append([]string{"override", "set", "acme", "api", "user_*", "--reason", "x"}, strings.Fields(step.flags)...)
		w.want(t, w.run(t, args...), exitOK, "set: "+step.want+"; nodes have it within two settings_interval_ms, about 10s unless tuned\n")
	}
	if w.shelf.override.Limit != window.LimitMax {
		t.Errorf("--unlimited set the limit %d, want the largest", w.shelf.override.Limit)
	}
	if code := w.run(t, "override", "set", "acme", "api", "u", "--limit=1", "--unlimited", "--reason", "x"); code != exitUsage || !strings.Contains(w.stderr.String(), "--unlimited") {
		t.Errorf("both a limit and none: exit %d, %s", code, w.stderr.String())
	}
	w.want(t, w.run(t, "override", "delete", "acme", "api", "user_*", "--reason", "over", "--yes"), exitOK, "deleted; nodes have it within two settings_interval_ms, about 10s unless tuned\n")
	if code := w.run(t, "override", "set", "acme", "api", "u", "--limit=-1", "--reason", "x"); code != exitUsage || !strings.Contains(w.stderr.String(), "--limit is -1 (0 to 9007199254740991; 0 blocks)") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// "Delete only the override that was seen": an override that has changed since is not deleted.
func TestOverrideDeleteOfWhatWasSeen(t *testing.T) {
	w := newWorld(t)
	w.shelf.override.UpdatedAt = now
	remove := func(flags ...string) int {
		return w.run(t, append([]string{"override", "delete", "acme", "api", "user_*", "--reason", "over", "--yes"}, flags...)...)
	}
	seen := now.UnixMilli()
	if code := remove("--if-updated-at", strconv.FormatInt(seen, 10)); code != exitOK || w.shelf.seen == nil || *w.shelf.seen != seen {
		t.Errorf("the one that was seen: exit %d, %s, %v", code, w.stderr.String(), w.shelf.seen)
	}
	if code := remove("--if-updated-at", strconv.FormatInt(seen-1, 10)); code == exitOK || !strings.Contains(w.stderr.String(), "changed meanwhile") {
		t.Errorf("one that has changed: exit %d, %s", code, w.stderr.String())
	}
	if code := remove("--if-updated-at", "yesterday"); code != exitUsage || !strings.Contains(w.stderr.String(), "--if-updated-at") {
		t.Errorf("no number: exit %d, %s", code, w.stderr.String())
	}
	if code := remove(); code != exitOK || w.shelf.seen != nil {
		t.Errorf("without the flag: exit %d, %s, %v", code, w.stderr.String(), w.shelf.seen)
	}
}

func TestNamespaceCommands(t *testing.T) {
	w := newWorld(t)
	const want = `
NAMESPACE  MODE   OUTAGE  NODE SHARE  WINDOW  SHADOW  ESTIMATE
api        exact  closed  wait        cells   yes     -
`
	w.want(t, w.run(t, "namespace", "set", "acme", "api", "--shadow", "--outage", "closed", "--reason", "trial"), exitOK, want)
	w.want(t, w.run(t, "namespace", "list", "acme"), exitOK, want)
	w.want(t, w.run(t, "namespace", "list", "acme", "--after", "aaa"), exitOK, want+"\nThere are more: --after \"api\"\n")
	w.want(t, w.run(t, "namespace", "list", "acme", "--after", "api"), exitOK, "the list has no more after --after\n")
	if code := w.run(t, "namespace", "set", "acme", "api", "--no-shadow", "--reason", "x"); code != exitOK || w.shelf.namespace.Shadow {
		t.Errorf("exit %d, %+v", code, w.shelf.namespace)
	}
	if code := w.run(t, "namespace", "set", "acme", "api", "--mode", "guess", "--reason", "x"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
	if code := w.run(t, "namespace", "set", "acme", "api", "--window", "sliding", "--reason", "x"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
	w.want(t, w.run(t, "namespace", "set", "acme", "login", "--window", "precise", "--reason", "x"), exitOK, `
NAMESPACE  MODE   OUTAGE  NODE SHARE  WINDOW   SHADOW  ESTIMATE
login      exact  local   wait        precise  -       -
`)
}

// A weir-control of an earlier build counts only in cells and returns no window. It ignores the field, so weirctl
// returns an error if the flag sets another window.
func TestNamespaceCommandsBeforeAnEarlierBuild(t *testing.T) {
	w := newWorld(t)
	w.shelf.older = true
	const want = `
NAMESPACE  MODE   OUTAGE  NODE SHARE  WINDOW  SHADOW  ESTIMATE
api        exact  local   wait        cells   yes     -
`
	for _, window := range [][]string{nil, {"--window", "cells"}} {
		w.want(t, w.run(t, append([]string{"namespace", "set", "acme", "api", "--shadow", "--reason", "x"}, window...)...), exitOK, want)
	}
	w.want(t, w.run(t, "namespace", "list", "acme"), exitOK, want)
	code := w.run(t, "namespace", "set", "acme", "api", "--shadow", "--window", "precise", "--reason", "x")
	if code != exitFailure || w.stdout.Len() > 0 || !strings.Contains(w.stderr.String(), `ignores window "precise"`) {
		t.Errorf("exit %d, %s%s", code, w.stdout.String(), w.stderr.String())
	}
}

func TestTokenCommands(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "token", "create", "ci", "--role", "viewer", "--reason", "pipeline"), exitOK, "weir_ci_viewer\n")
	if !strings.Contains(w.stderr.String(), "It is not shown again") {
		t.Errorf("stderr %q", w.stderr.String())
	}
	if code := w.run(t, "token", "create", "ci", "--role", "viewer", "--workspace", "acme", "--workspace=a,b", "--reason", "x"); code != exitOK || !slices.Equal(w.shelf.names, []string{"acme", "a,b"}) {
		t.Errorf("exit %d, workspaces %q", code, w.shelf.names)
	}
	w.want(t, w.run(t, "token", "list"), exitOK, `
NAME  ROLE    WORKSPACES  CREATED               BY   USED   STATE
ci    viewer  acme, beta  2026-01-02 15:04:05Z  ann  never  in force
old   admin   all         2026-01-02 15:04:05Z  ann  never  revoked 2026-01-02 15:04:05Z
`)
	w.want(t, w.run(t, "token", "list", "--after", "aaa"), exitOK, `
NAME  ROLE    WORKSPACES  CREATED               BY   USED   STATE
ci    viewer  acme, beta  2026-01-02 15:04:05Z  ann  never  in force
old   admin   all         2026-01-02 15:04:05Z  ann  never  revoked 2026-01-02 15:04:05Z

There are more: --after "old"
`)
	w.want(t, w.run(t, "token", "list", "--after", "old"), exitOK, "the list has no more after --after\n")
	w.want(t, w.run(t, "token", "revoke", "ci", "--reason", "leaked", "--yes"), exitOK, "token ci is no longer valid\n")
	if code := w.run(t, "token", "create", "ci", "--role", "root", "--reason", "x"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
}

// A new secret is shown once. Flags set the lifetime of a token and of its previous secret.
func TestTokenRotate(t *testing.T) {
	w := newWorld(t)
	if code := w.run(t, "token", "create", "ci", "--role", "viewer", "--expires-in", "720h", "--reason", "x"); code != exitOK || w.shelf.lives[1] != 720*time.Hour {
		t.Errorf("exit %d, %v", code, w.shelf.lives)
	}
	w.want(t, w.run(t, "token", "rotate", "ci", "--reason", "quarterly"), exitOK, "weir_new_ci\n")
	if w.shelf.lives != [2]time.Duration{24 * time.Hour, 0} || !strings.Contains(w.stderr.String(), "The old secret stays valid for 1d0h.") {
		t.Errorf("%v, %s", w.shelf.lives, w.stderr.String())
	}
	if code := w.run(t, "token", "rotate", "ci", "--overlap", "0s", "--expires-in", "1h", "--reason", "leaked", "--yes"); code != exitOK || w.shelf.lives != [2]time.Duration{0, time.Hour} {
		t.Errorf("exit %d, %v", code, w.shelf.lives)
	}
}

// The list shows whether a token is valid, and until when.
func TestTokenStates(t *testing.T) {
	c := &call{terminal: terminal{now: func() time.Time { return now }}}
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	for want, token := range map[string]*controlv1.Token{
		"in force":                                 {},
		"revoked 2026-01-02 15:04:04Z":             {RevokedAtMs: at(-time.Second), ExpiresAtMs: at(time.Hour)},
		"expired 2026-01-02 15:04:05Z":             {ExpiresAtMs: at(0), OldUntilMs: at(time.Hour)},
		"expires in 1h":                            {ExpiresAtMs: at(time.Hour), OldUntilMs: at(-time.Hour)},
		"in force; the old secret ends in 2h":      {OldUntilMs: at(2 * time.Hour)},
		"expires in 1h; the secret before, in 30m": {ExpiresAtMs: at(time.Hour), OldUntilMs: at(30 * time.Minute)},
		"expires in 2h; the secret before, in 2h":  {ExpiresAtMs: at(2 * time.Hour), OldUntilMs: at(3 * time.Hour)},
	} {
		if got := c.tokenState(token); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The token comes from the environment or a file, and errors describe a missing or insufficient token.
func TestCallsWithAToken(t *testing.T) {
	w := newGuardedWorld(t)
	w.shelf.secret = "weir_s3cret"
	if code := w.run(t, "fleet"); code != exitFailure || !strings.Contains(w.stderr.String(), "requires a token") || !strings.Contains(w.stderr.String(), "Set WEIR_TOKEN") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	t.Setenv("WEIR_TOKEN", "weir_other")
	if code := w.run(t, "fleet"); code != exitFailure || strings.Contains(w.stderr.String(), "weir_other") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	t.Setenv("WEIR_TOKEN", "weir_s3cret\n")
	if code := w.run(t, "fleet"); code != exitOK {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if err := os.Unsetenv("WEIR_TOKEN"); err != nil {
		t.Fatal(err)
	}
	if code := w.run(t, "cleanup", "pause", "--reason", "x", "--token-file", path(t, "weir_s3cret\n")); code != exitOK || w.schedule.by.Actor != "bot" {
		t.Errorf("exit %d, %s, by %+v", code, w.stderr.String(), w.schedule.by)
	}
	if code := w.run(t, "token", "list", "--token-file", path(t, "weir_s3cret")); code != exitFailure || !strings.Contains(w.stderr.String(), "token bot has the role operator; this requires the role admin") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, "fleet", "--token-file", "/does/not/exist"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
}
