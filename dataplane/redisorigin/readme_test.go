package redisorigin_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// readmeRights is the README's ACL SETUSER.
func readmeRights(t testing.TB) (words []any) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ +(ACL SETUSER weir .*)$`).FindSubmatch(readme)
	if line == nil {
		t.Fatal("README has no ACL SETUSER")
	}
	for word := range strings.FieldsSeq(string(line[1])) {
		words = append(words, word)
	}
	return words
}

// "A user that may do this and no more": with each right it works, and with any one
// less it does not.
func TestREADMEsUserMayDoWhatIsNeeded(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	command(t, raw, readmeRights(t)...)
	c := cellNow("x", time.Minute)
	use := func() []error {
		o := openURL(t, "redis://weir:password@"+server.Addr()+"/1", redisorigin.Options{})
		_, readErr := o.Read(t.Context(), []window.Cell{c, cellNow("y", time.Minute)})
		return []error{
			readErr,
			addOne(t.Context(), o, c, 1),
			o.Claim(t.Context(), []store.Claim{{Cell: c, Cost: 1, AtMost: 1 << 40}})[0].Err,
			o.Raise(t.Context(), []store.Add{{Cell: c, Cost: 1 << 20}}),
		}
	}
	for _, err := range use() {
		if err != nil {
			t.Errorf("with the README's rights: %v", err)
		}
	}
	for _, right := range []string{"eval", "get", "mget", "set", "incrby", "pexpireat"} {
		command(t, raw, "ACL", "SETUSER", "weir", "-"+right)
		command(t, raw, "FLUSHALL")
		failed := false
		for _, err := range use() {
			failed = failed || err != nil
		}
		if !failed {
			t.Errorf("without the right to %s all calls succeed: the README gives too much", right)
		}
		command(t, raw, "ACL", "SETUSER", "weir", "+"+right)
	}
}

// The README's metrics are those that there are.
func TestREADMEsMetrics(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, name := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllSubmatch(readme, -1) {
		told[string(name[1])] = true
	}
	there := gathered(t, openAt(t, "127.0.0.1:1", redisorigin.Options{}))
	for name := range there {
		if !told[name] {
			t.Errorf("README does not tell of %s", name)
		}
	}
	if len(told) != len(there) {
		t.Errorf("README tells of %d metrics, there are %d", len(told), len(there))
	}
}
