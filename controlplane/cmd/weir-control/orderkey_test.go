package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/restate/orderkey"
)

// Two processes accept each other's orders if they have the same order-key-file, and only then.
func TestOrderKeyFileIsSharedBetweenProcesses(t *testing.T) {
	path := file(t, "# of both\n"+strings.Repeat("k", 64)+"\n")
	keysOf := func(c config) *orderkey.Keys {
		t.Helper()
		keys, _, err := c.orderKeys()
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	accepts := func(signer, checker *orderkey.Keys) bool {
		o := signer.Sign(orderkey.Order{Service: "s", Handler: "h"}, time.Now())
		return checker.Check(&o, time.Now()) == nil
	}
	with, alone := config{OrderKeyFile: path}, config{}
	if !accepts(keysOf(with), keysOf(with)) {
		t.Error("one file, and the order is refused")
	}
	if accepts(keysOf(alone), keysOf(alone)) || accepts(keysOf(alone), keysOf(with)) {
		t.Error("without a common file an order of another process is accepted")
	}
}

// If a file changes to content without keys, the previous keys stay in force.
func TestOrderKeyFileIsReadAgain(t *testing.T) {
	path := file(t, strings.Repeat("k", 64))
	keys, files, err := (&config{OrderKeyFile: path}).orderKeys()
	if err != nil {
		t.Fatal(err)
	}
	before := keys.Sign(orderkey.Order{Service: "s", Handler: "h"}, time.Now())
	for _, step := range []struct {
		content          string
		changed, refused bool
		accepts          bool // the first key's signatures
	}{
		{strings.Repeat("k", 64), false, false, true},
		{"", true, true, true},
		{strings.Repeat("n", 64) + "\n" + strings.Repeat("k", 64), true, false, true},
		{strings.Repeat("n", 64), true, false, false},
	} {
		if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		changed, err := files.Check()
		if changed != step.changed || (err != nil) != step.refused {
			t.Errorf("%.20q: changed %v, %v", step.content, changed, err)
		}
		if accepts := keys.Check(&before, time.Now()) == nil; accepts != step.accepts {
			t.Errorf("%.20q: the first key is accepted: %v", step.content, accepts)
		}
	}
}

func TestOrderKeyFileRefusals(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", secretDSN)
	for name, tc := range map[string]struct{ path, says string }{
		"no file":  {t.TempDir() + "/none", "order-key-file: stat"},
		"a folder": {t.TempDir(), "order-key-file:"},
		"short":    {file(t, "short"), "the key in line 1 is 5 bytes long (32 to 512"},
	} {
		code, _, stderr := tried(t, "--api-listen", "127.0.0.1:0", "--handlers-listen", "127.0.0.1:0", "--order-key-file", tc.path)
		if code != exitFailure || !strings.Contains(stderr, tc.says) || strings.Contains(stderr, "short\"") {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}
