package routes_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// Both stores behave like a sorted map of byte strings: 'A', 'a', 'a ' and 'ä' are four patterns, in three namespaces
// and two workspaces that are independent.
func TestMemoryKeepsOverrides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { agree(t, new(routes.Memory)) })
}

func TestMySQLKeepsOverrides(t *testing.T) { servers.EachSQL(t, testMySQLKeepsOverrides) }

func testMySQLKeepsOverrides(t *testing.T) {
	maria := servers.SQLForTest(t)
	db := schematest.Open(t, maria.DatabaseForTest(t), mysqlcounts.Open)
	rapid.Check(t, func(r *rapid.T) {
		if _, err := db.ExecContext(t.Context(), "DELETE FROM ratelimit_overrides"); err != nil {
			t.Fatal(err)
		}
		agree(r, routes.MySQL{DB: db})
	})
	// Nodes read the stored overrides.
	if _, err := db.ExecContext(t.Context(), "DELETE FROM ratelimit_overrides"); err != nil {
		t.Fatal(err)
	}
	if err := (routes.MySQL{DB: db}).Set(t.Context(), "acme", "api", routes.Override{Pattern: "vip-*", Limit: 7, DurationMs: 1000}); err != nil {
		t.Fatal(err)
	}
	// A change keeps the candidate and the shadow mode, which only the control plane sets.
	if _, err := db.ExecContext(t.Context(), "UPDATE ratelimit_overrides SET candidate = 9, shadow = TRUE"); err != nil {
		t.Fatal(err)
	}
	if err := (routes.MySQL{DB: db}).Set(t.Context(), "acme", "api", routes.Override{Pattern: "vip-*", Limit: 8, DurationMs: 1000}); err != nil {
		t.Fatal(err)
	}
	settings, err := mysqlcounts.New(db, mysqlcounts.Options{}).Settings(t.Context(), "eu")
	want := store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "vip-*", Limit: 8, DurationMs: 1000, Candidate: 9, Shadow: true}
	if err != nil || len(settings.Overrides) != 1 || settings.Overrides[0] != want {
		t.Errorf("nodes read %+v, %v", settings.Overrides, err)
	}
}

// At most 32 patterns can begin alike. The 33rd pattern with more than one '*' gets a 400 with the field and the bound,
// and is not stored. Existing patterns can be changed.
func TestAPatternWithoutRoomIsRefused(t *testing.T) {
	t.Run("memory", func(t *testing.T) { refusesPatternsAlike(t, new(routes.Memory)) })
	servers.EachSQL(t, func(t *testing.T) {
		db := schematest.Open(t, servers.SQLForTest(t).DatabaseForTest(t), mysqlcounts.Open)
		refusesPatternsAlike(t, routes.MySQL{DB: db})
		takesPlacesOnce(t, routes.MySQL{DB: db})
	})
}

// If many callers take the last places concurrently, only as many succeed as fit.
func takesPlacesOnce(t *testing.T, overrides routes.Overrides) {
	t.Helper()
	set := func(i int) error {
		return overrides.Set(t.Context(), "acme", "places", routes.Override{Pattern: fmt.Sprintf("*%02d*", i), Limit: 1, DurationMs: 1000})
	}
	for i := range window.PatternsAlikeMax - 3 {
		if err := set(2 * i); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error, 8)
	for i := range 8 {
		go func() { errs <- set(2*i + 1) }()
	}
	for range 8 {
		if err := <-errs; err != nil && !errors.Is(err, routes.ErrPatternsAlike) {
			t.Error(err)
		}
	}
	if all, err := overrides.List(t.Context(), "acme", "places", "", 100); err != nil || len(all) != window.PatternsAlikeMax {
		t.Errorf("%d overrides, %v, want %d", len(all), err, window.PatternsAlikeMax)
	}
}

func refusesPatternsAlike(t *testing.T, overrides routes.Overrides) {
	t.Helper()
	set := func(namespace, pattern string) (int, string) {
		body := fmt.Sprintf(`{"namespace":%q,"identifier":%q,"limit":1,"duration":1000}`, namespace, pattern)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, routes.Paths["setOverride"], strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer test")
		w := httptest.NewRecorder()
		newService(scripted(allowAll), overrides).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for i := range window.PatternsAlikeMax {
		if code, body := set("n", fmt.Sprintf("%%é%.*s*%d*", i%3, "ab", i)); code != http.StatusOK {
			t.Fatal(code, body)
		}
	}
	for _, pattern := range []string{"%é*a*", "*a*", "%éabc*a*", "**"} {
		code, body := set("n", pattern)
		if want := "body.identifier begins like others with more than one '*' (at most 32 begin alike)"; code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s, want %q", pattern, code, body, want)
		}
		if _, found, err := overrides.Get(t.Context(), "acme", "n", pattern); err != nil || found {
			t.Errorf("%q is stored: %v", pattern, err)
		}
	}
	for namespace, patterns := range map[string][]string{"n": {"%éb*a*", "%é*", "%é*0*", "k"}, "m": {"%é*a*"}} {
		for _, pattern := range patterns {
			if code, body := set(namespace, pattern); code != http.StatusOK {
				t.Errorf("%q: %d %s", pattern, code, body)
			}
		}
	}
}

// A change and its audit entry are both stored, or neither. The entry has the state before the change, and the hash of
// the token. A user that cannot write the log changes nothing.
func TestMySQLAuditsOverrides(t *testing.T) { servers.EachSQL(t, testMySQLAuditsOverrides) }

func testMySQLAuditsOverrides(t *testing.T) {
	dsn := servers.SQLForTest(t).DatabaseForTest(t)
	open := func(dsn string) *sql.DB {
		db, err := mysqlcounts.Open(dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	root := schematest.Open(t, dsn, mysqlcounts.Open)
	users := []string{
		"CREATE USER IF NOT EXISTS 'unaudited'@'%' IDENTIFIED BY 'change me'", "GRANT SELECT, INSERT, UPDATE, DELETE ON ratelimit_overrides TO 'unaudited'@'%'",
		"CREATE USER IF NOT EXISTS 'audited'@'%' IDENTIFIED BY 'change me'",
	}
	for _, statement := range append(users, grantsOfOverrides(t)...) {
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	post := func(db *sql.DB, route, body string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, routes.Paths[route], strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer test")
		w := httptest.NewRecorder()
		newService(scripted(allowAll), routes.MySQL{DB: db}).ServeHTTP(w, r)
		return w.Code
	}
	const k = `{"namespace":"n","identifier":"k"}`
	set := func(limit int) string {
		return fmt.Sprintf(`{"namespace":"n","identifier":"k","limit":%d,"duration":1000}`, limit)
	}
	unaudited := open(strings.Replace(dsn, "root@", "unaudited:change me@", 1))
	audited := open(strings.Replace(dsn, "root@", "audited:change me@", 1))
	for i, step := range []struct {
		db          *sql.DB
		route, body string
		want        int
	}{
		{audited, "setOverride", set(1), 200}, {audited, "setOverride", set(2), 200}, {unaudited, "setOverride", set(3), 403},
		{unaudited, "deleteOverride", k, 403}, {audited, "deleteOverride", k, 200}, {audited, "deleteOverride", k, 404},
	} {
		if got := post(step.db, step.route, step.body); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
	rows, err := root.QueryContext(t.Context(), "SELECT CONCAT_WS(' ', actor, action, subject, reason, before_state, after_state) FROM ratelimit_audit ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var entry string
		if err := rows.Scan(&entry); err != nil {
			t.Fatal(err)
		}
		got = append(got, entry)
	}
	const by, one, two = "token 9f86d081884c ", `{"limit":1,"duration_ms":1000}`, `{"limit":2,"duration_ms":1000}`
	want := []string{
		by + "override.set override acme/n/k api /v2/ratelimit.setOverride  " + one,
		by + "override.set override acme/n/k api /v2/ratelimit.setOverride " + one + " " + two,
		by + "override.delete override acme/n/k api /v2/ratelimit.deleteOverride " + two + " ",
	}
	if err := rows.Err(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: the log is\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantChain(t, root, 3)
}

// grantsOfOverrides are schema/README.md's for a node with v2-overrides, and for it to read overrides.
func grantsOfOverrides(t *testing.T) (statements []string) {
	t.Helper()
	text, err := os.ReadFile("../../../schema/README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^(?:    )?(GRANT .* ON )weir\.(ratelimit_\w+ TO 'weir_node'@'%');$`)
	for _, grant := range all.FindAllStringSubmatch(string(text), -1) {
		statements = append(statements, strings.Replace(grant[1]+grant[2], "weir_node", "audited", 1))
	}
	return statements
}

// wantChain fails unless the audit log is a whole hash chain of some entries.
func wantChain(t *testing.T, db *sql.DB, linked int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT id, at, actor, action, subject, reason, before_state, after_state, follows, previous_hash, hash
		FROM ratelimit_audit JOIN ratelimit_audit_chain ON entry_id = id ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	v := new(auditchain.Verifier)
	for rows.Next() {
		var e auditchain.Entry
		var l auditchain.Link
		var previous, hash []byte
		if err := rows.Scan(&e.ID, &e.AtMs, &e.Actor, &e.Action, &e.Subject, &e.Reason, &e.Before, &e.After, &l.Follows, &previous, &hash); err != nil {
			t.Fatal(err)
		}
		copy(l.Previous[:], previous)
		copy(l.Hash[:], hash)
		if err := v.Next(&e, l); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil || v.Linked() != linked {
		t.Fatalf("%v, %d linked", err, v.Linked())
	}
	var end auditchain.End
	var hash []byte
	if err := db.QueryRowContext(t.Context(), "SELECT follows, previous_hash FROM ratelimit_audit_chain WHERE entry_id = 0").Scan(&end.ID, &hash); err != nil {
		t.Fatal(err)
	}
	copy(end.Hash[:], hash)
	if err := v.Finish(end); err != nil {
		t.Error(err)
	}
}

type name struct{ workspace, namespace, pattern string }

// agree runs a random history against a store and a map.
func agree(t *rapid.T, overrides routes.Overrides) {
	model := make(map[name]routes.Override)
	patterns := rapid.SampledFrom([]string{"A", "a", "a ", "ä", "*", "a*", "\x00", "\xff", "%", "_", `\`, "'", strings.Repeat("x", 255)})
	drawName := func() name {
		return name{rapid.SampledFrom([]string{"acme", "Acme"}).Draw(t, "workspace"), rapid.SampledFrom([]string{"n", "N", "n "}).Draw(t, "namespace"), patterns.Draw(t, "pattern")}
	}
	ctx := t.Context()
	t.Repeat(map[string]func(*rapid.T){
		"set": func(t *rapid.T) {
			n := drawName()
			o := routes.Override{Pattern: n.pattern, Limit: rapid.Int64Range(0, 1<<53-1).Draw(t, "limit"), DurationMs: rapid.Int64Range(0, 31622400000).Draw(t, "duration")}
			if err := overrides.Set(ctx, n.workspace, n.namespace, o); err != nil {
				t.Fatal(err)
			}
			model[n] = o
		},
		"delete": func(t *rapid.T) {
			n := drawName()
			found, err := overrides.Delete(ctx, n.workspace, n.namespace, n.pattern)
			if _, want := model[n]; err != nil || found != want {
				t.Fatalf("deleted %+v: %v, %v", n, found, err)
			}
			delete(model, n)
		},
		"get": func(t *rapid.T) {
			n := drawName()
			o, found, err := overrides.Get(ctx, n.workspace, n.namespace, n.pattern)
			if want, there := model[n]; err != nil || found != there || o != want {
				t.Fatalf("got %+v: %+v, %v, %v; want %+v", n, o, found, err, want)
			}
		},
		"list": func(t *rapid.T) {
			n, most := drawName(), rapid.IntRange(1, 8).Draw(t, "most")
			if rapid.Bool().Draw(t, "from the start") {
				n.pattern = ""
			}
			var want []routes.Override
			for m, o := range model {
				if m.workspace == n.workspace && m.namespace == n.namespace && m.pattern > n.pattern {
					want = append(want, o)
				}
			}
			slices.SortFunc(want, func(a, b routes.Override) int { return strings.Compare(a.Pattern, b.Pattern) })
			got, err := overrides.List(ctx, n.workspace, n.namespace, n.pattern, most)
			if err != nil || !slices.Equal(got, want[:min(most, len(want))]) {
				t.Fatalf("after %q: %+v, %v; want %+v", n.pattern, got, err, want)
			}
		},
	})
}

// The limiter applies overrides in memory to every caller, within seconds.
func TestMemoryIsTheLimitersSettings(t *testing.T) {
	memory := new(routes.Memory)
	limiter, err := dataplane.New(dataplane.Config{Region: "local", NodeID: "n", Settings: memory})
	if err != nil {
		t.Fatal(err)
	}
	if err := memory.Set(t.Context(), "acme", "api", routes.Override{Pattern: "vip-*", Limit: 7}); err != nil {
		t.Fatal(err)
	}
	if err := limiter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := limiter.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	request := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "vip-1", Limit: 1, Duration: time.Minute, Cost: 1}
	await.True(t, "the override is in force", func() bool { return limiter.Peek(t.Context(), request).Override == "vip-*" })
	if d := limiter.Allow(t.Context(), request); d.Limit != 7 || d.Remaining != 6 {
		t.Errorf("%+v", d)
	}
}
