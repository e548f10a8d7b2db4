package window

import (
	"strings"
	"testing"
	"time"
)

// Every name has a valid identifier, different names have different identifiers, and a name that fits is its own
// identifier.
func TestBoundIdentifierTakesAnyName(t *testing.T) {
	long := strings.Repeat("k", IdentifierBytesMax)
	names := []string{"", "a", "\x00", "\xff", "é", long, long + "k", long + "\xff", strings.Repeat("k", 1<<20)}
	of := make(map[string]string)
	for _, name := range names {
		id := BoundIdentifier(name)
		key := Key{Workspace: "w", Namespace: "n", Identifier: id, Duration: time.Second}
		if err := key.Validate(); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
		if other, taken := of[id]; taken {
			t.Errorf("%.20q and %.20q are both %q", name, other, id)
		}
		of[id] = name
		if fits := len(name) >= 1 && len(name) <= IdentifierBytesMax; fits && id != name || BoundIdentifier(id) != id {
			t.Errorf("%.20q is %q", name, id)
		}
	}
}
