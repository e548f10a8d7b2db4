package node

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// The source of a decision has the same name in Go, in metrics and on the wire.
func TestSourcesHaveOneName(t *testing.T) {
	known := 0
	for s := dataplane.SourceLocal; s.String() != "none"; s++ {
		want := "SOURCE_" + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(s.String()))
		if got := writeSource(s).String(); got != want {
			t.Errorf("%v is %s on the wire, want %s", s, got, want)
		}
		known++
	}
	if known != len(weirv1.Source_name)-1 {
		t.Errorf("%d sources, %d on the wire", known, len(weirv1.Source_name)-1)
	}
}
