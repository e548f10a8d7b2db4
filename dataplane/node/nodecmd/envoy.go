package nodecmd

import (
	"fmt"
	"log/slog"

	"github.com/weirhq/weir/dataplane/node/rls"
)

// newRLS is Envoy's service. Without rules it decides only requests that carry a limit.
func newRLS(config Config, limiter rls.Limiter, logger *slog.Logger) (*rls.Service, error) {
	s := &rls.Service{
		Limiter:   limiter,
		Rules:     new(rls.Source),
		Workspace: config.RLSWorkspace,
		Unmatched: rls.NewUnmatched(logger),
		Headers: map[string]rls.Headers{"denied": rls.HeadersOnDenial, "always": rls.HeadersAlways,
			"never": rls.HeadersNever}[config.RLSHeaders],
		Metadata:    config.RLSMetadata,
		ReadTimeout: config.ReadTimeout,
	}
	if config.RLSRules == "" {
		return s, nil
	}
	rules, err := rls.OpenRules(config.RLSRules)
	if err != nil {
		return nil, fmt.Errorf("rls-rules: %w", err)
	}
	s.Rules = rules
	return s, nil
}
