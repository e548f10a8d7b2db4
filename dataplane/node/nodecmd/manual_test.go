package nodecmd

import (
	"io"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/manual"
)

// weir-node accepts every command line on a page.
func TestCommandsOfThePagesAreTaken(t *testing.T) {
	for _, example := range manual.Of(t, "weir-node") {
		if args := example.Args(); len(args) > 0 && args[0] == checkRulesCommand {
			if _, _, err := parseCheckRules(args[1:], io.Discard, io.Discard); err != nil && !example.Forgives(err) {
				t.Errorf("%s: %v", example, err)
			}
			continue
		}
		if _, _, err := weirNode.load(example.Args(), io.Discard, io.Discard); err != nil && !example.Forgives(err) {
			t.Errorf("%s: %v", example, err)
		}
		for _, set := range example.Env {
			if !strings.HasPrefix(set, "OTEL_EXPORTER_OTLP_ENDPOINT=") { // see TestCallsAndBackgroundWorkAreTraced
				t.Errorf("%s: nothing here looks whether these variables are read", example)
			}
		}
	}
}
