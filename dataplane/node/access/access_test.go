package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/workspaces"
)

// hashed returns a token's line, as sha256sum prints it.
func hashed(token string) string { return fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(token))) }

// reserving is a Limiter that only reserves.
type reserving struct {
	Limiter
	reserved func(dataplane.ReserveRequest)
}

func (r reserving) Reserve(_ context.Context, request dataplane.ReserveRequest) dataplane.Reserved {
	r.reserved(request)
	return dataplane.Reserved{}
}

func hashedMany(n int) string {
	var lines strings.Builder
	for i := range n {
		lines.WriteString(hashed(fmt.Sprint(i)))
	}
	return lines.String()
}

// A file of tokens that would accept no caller is rejected, and the error contains nothing of the file.
func TestFaultyTokens(t *testing.T) {
	for content, want := range map[string]string{
		"":                                "there are 0 (1 to 1000)",
		"# nothing\n":                     "there are 0",
		"hunter2\n":                       "line 1 does not begin with a SHA-256",
		hashed("a") + hashed("b")[:60]:    "line 2 does not begin",
		strings.Repeat("g", 64):           "line 1 does not begin",
		hashedMany(1001):                  "there are 1001",
		hashed("a") + "#\n" + hashed("a"): "line 3 has the same hash as line 1",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, time.Now); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.20q: %v, want %q", content, err, want)
		}
	}
}

// An ID that is drawn for a token with a scope is as new as an ID that the limiter draws, so a refusal looks for no
// reservation with it. An ID of the caller can be a retry.
func TestAReservationOfAScopeWithoutAnIDIsNoRetry(t *testing.T) {
	acme, err := workspaces.Parse("acme")
	if err != nil {
		t.Fatal(err)
	}
	for id, drawn := range map[string]bool{"": true, "r-17": false} {
		var got dataplane.ReserveRequest
		all := reserving{reserved: func(r dataplane.ReserveRequest) { got = r }}
		Restrict(all, &Scope{workspaces: acme, key: "k"}).Reserve(t.Context(), dataplane.ReserveRequest{ID: id,
			Requests: []dataplane.Request{{Workspace: "acme"}}})
		if got.ID == "" || got.Drawn != drawn {
			t.Errorf("id %q: %+v", id, got)
		}
	}
}

// settling is a Limiter that takes calls about reservations, and answers with the ID and the workspaces that it was
// given.
type settling struct {
	Limiter
	got     *string
	visible *func(string) bool
}

func (s settling) about(id string) (dataplane.Settlement, error) {
	*s.got = id
	return dataplane.Settlement{ID: id}, nil
}

func (s settling) Reserve(_ context.Context, r dataplane.ReserveRequest) dataplane.Reserved {
	*s.got = r.ID
	return dataplane.Reserved{ID: r.ID}
}

func (s settling) Settle(_ context.Context, id string, _ ...int64) (dataplane.Settlement, error) {
	return s.about(id)
}

func (s settling) Spend(_ context.Context, id string, _ ...int64) (dataplane.Settlement, error) {
	return s.about(id)
}

func (s settling) Cancel(_ context.Context, id string) (dataplane.Settlement, error) {
	return s.about(id)
}

func (s settling) Extend(_ context.Context, id string, _ time.Duration) (dataplane.Settlement, error) {
	return s.about(id)
}

func (s settling) TopKeys(q dataplane.TopQuery) (dataplane.TopKeys, error) {
	*s.visible = q.Visible
	return dataplane.TopKeys{}, nil
}

// Every call about a reservation finds only reservations of tokens with the same workspaces. Its response has the
// caller's ID.
func TestCallsAboutAReservationStayInTheirScope(t *testing.T) {
	const id = "r-17"
	inner := make(map[string]string)
	for _, names := range []string{"acme", "globex"} {
		scope, err := parseScope([]string{"workspaces=" + names})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		limiter := Restrict(settling{got: &got}, scope)
		reserved := limiter.Reserve(t.Context(), dataplane.ReserveRequest{ID: id,
			Requests: []dataplane.Request{{Workspace: names}}})
		if inner[names] = got; got == id || reserved.ID != id {
			t.Errorf("reserved as %q, and the caller knows it as %q", got, reserved.ID)
		}
		for call, make := range map[string]func() (dataplane.Settlement, error){
			"Settle": func() (dataplane.Settlement, error) { return limiter.Settle(t.Context(), id, 1) },
			"Spend":  func() (dataplane.Settlement, error) { return limiter.Spend(t.Context(), id, 1) },
			"Cancel": func() (dataplane.Settlement, error) { return limiter.Cancel(t.Context(), id) },
			"Extend": func() (dataplane.Settlement, error) { return limiter.Extend(t.Context(), id, time.Minute) },
		} {
			got = ""
			if s, err := make(); err != nil || got != inner[names] || s.ID != id {
				t.Errorf("%s of %s: is about %q, want %q, and answers with %q: %v", call, names, got, inner[names], s.ID, err)
			}
		}
	}
	if inner["acme"] == inner["globex"] {
		t.Errorf("tokens of different workspaces both reserve as %q", inner["acme"])
	}
}

// A limiter that lists the keys of all workspaces for a token with a scope gets the workspaces that it can show.
func TestTopKeysShowTheWorkspacesOfTheScope(t *testing.T) {
	scope, err := parseScope([]string{"workspaces=acme"})
	if err != nil {
		t.Fatal(err)
	}
	var visible func(string) bool
	limiter := Restrict(settling{visible: &visible}, scope)
	for _, workspace := range []string{"", "acme"} {
		visible = nil
		if _, err := limiter.TopKeys(dataplane.TopQuery{Workspace: workspace}); err != nil {
			t.Fatal(err)
		}
		if visible == nil || !visible("acme") || visible("globex") {
			t.Errorf("keys of workspace %q: the limiter does not know what the token may see", workspace)
		}
	}
}

// A malformed line of a tokens file makes the whole file invalid.
func TestLinesOfATokensFile(t *testing.T) {
	hash := strings.Fields(hashed("a"))[0]
	for line, want := range map[string]string{
		"  -":                      "",
		"  the gateway's":          "",
		"  actions-runner":         "",
		"  workspaces=acme":        "",
		"  workspaces=a%2Cb,c%20d": "",
		"  gateway workspaces=acme actions=limit,read expires=2027-01-31T00:00:00Z": "",
		"  workspace=acme":            `"workspace" is unknown`,
		"  workspaces=":               `"workspaces" has a name of 0 bytes`,
		"  workspaces=a,,b":           `"workspaces" has a name of 0 bytes`,
		"  workspaces=%zz":            `"workspaces" has "%zz"`,
		"  workspaces=a workspaces=b": `"workspaces" occurs twice`,
		"  workspaces: acme":          `"workspaces:" lacks an '='`,
		"  the Workspaces:acme":       `"Workspaces:acme" lacks an '='`,
		"  action read":               `"action" lacks an '='`,
		"  expires:2027-01-31":        `"expires:2027-01-31" lacks an '='`,
		"  actions=all":               `"actions" has "all" (limit, read, overrides, metrics or profiles)`,
		"  actions=":                  `"actions" has ""`,
		"  expires=tomorrow":          `"expires" is "tomorrow"`,
		"  expires=2027-01-31T00:00:00Z expires=2028-01-31T00:00:00Z": `"expires" occurs twice`,
		"  workspaces=" + strings.Repeat("x", 192):                    `"workspaces" has a name of 192 bytes`,
	} {
		known, err := parseTokens([]byte("# a comment\n" + hash + line + "\n"))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", line, err, want)
		case err != nil && !strings.Contains(err.Error(), "line 2"):
			t.Errorf("%q: %v does not name the line", line, err)
		case err == nil && (len(known) != 1 || (known[0].Scope == nil) != !strings.Contains(line, "=")):
			t.Errorf("%q: %+v", line, known)
		}
	}
	known, err := parseTokens([]byte(hash + "  workspaces=a%2Cb,c%20d"))
	if err != nil || !known[0].Scope.Holds("a,b") || !known[0].Scope.Holds("c d") || known[0].Scope.Holds("a") {
		t.Errorf("escaped names: %+v, %v", known, err)
	}
}

// A token must have only one line, because a second line could take back its workspaces, or widen them.
func TestATokenHasOneLine(t *testing.T) {
	hash := strings.Fields(hashed("a"))[0]
	for _, lines := range [][2]string{{hash + " workspaces=acme", hash}, {hash, hash + " workspaces=acme"},
		{hash, strings.ToUpper(hash)}} {
		known, err := parseTokens([]byte(lines[0] + "\n" + lines[1] + "\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2 has the same hash as line 1") {
			t.Errorf("%q: %d tokens, %v", lines, len(known), err)
		}
	}
}

// A tokens file with any bytes is read or rejected, and each token in it has at most the workspaces that its line
// names.
func FuzzTokensFile(f *testing.F) {
	f.Add([]byte(hashed("everything") + hashed("acme")[:64] + " workspaces=acme\n" + hashed("limits")[:64] + " actions=limit\n"))
	f.Add([]byte("# x\n" + strings.ToUpper(hashed("a"))))
	f.Fuzz(func(t *testing.T, content []byte) {
		known, err := parseTokens(content)
		if err != nil {
			return
		}
		for i := range known {
			if s := known[i].Scope; s != nil && (s.actions == 0 || s.workspaces != nil && s.Holds("")) {
				t.Errorf("%+v", s)
			}
		}
		if bytes.Contains(content, []byte("workspaces=")) && !bytes.Contains(content, []byte("#")) &&
			!slices.ContainsFunc(known, func(k Token) bool { return k.Scope != nil }) {
			t.Errorf("no token of %q has a scope", content)
		}
	})
}
