package nodecmd

import (
	"log/slog"
	"testing"

	"github.com/weirhq/weir/dataplane/node/rls"
)

// The options of Envoy's service select what its responses have besides the decision.
func TestResponsesForEnvoyHaveWhatIsConfigured(t *testing.T) {
	for _, step := range []struct {
		args     []string
		headers  rls.Headers
		metadata bool
	}{
		{nil, rls.HeadersOnDenial, true},
		{[]string{"--rls-headers=always", "--rls-metadata"}, rls.HeadersAlways, true},
		{[]string{"--rls-headers=never", "--rls-metadata=false"}, rls.HeadersNever, false},
	} {
		config, _, err := parse(step.args...)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newRLS(config, nil, slog.New(slog.DiscardHandler))
		if err != nil || s.Headers != step.headers || s.Metadata != step.metadata {
			t.Errorf("%v: headers %v, metadata %v, error %v", step.args, s.Headers, s.Metadata, err)
		}
	}
}
