package nodecmd

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/servertls"
)

// security has the tokens that calls need, and the encryption of connections.
type security struct {
	tokens  *access.Tokens // nil: tokens are not required
	tls     *servertls.TLS // nil: connections are not encrypted
	reloads []node.Reload
}

func openAccess(config Config, logger *slog.Logger) (a security, err error) {
	if config.TokensFile != "" {
		if a.tokens, err = access.Open(config.TokensFile, time.Now); err != nil {
			return a, fmt.Errorf("tokens-file: %w", err)
		}
		if n := a.tokens.Unscoped(); n > 0 {
			logger.Warn("tokens without workspaces= and actions= in tokens-file are valid for every workspace and every "+
				"action", "tokens", n)
		}
		a.reloads = append(a.reloads, node.Reload{Name: "tokens", Check: a.tokens.Check, Soon: true})
	}
	if config.TLSCertFile != "" {
		if a.tls, err = servertls.Open(config.TLSCertFile, config.TLSKeyFile, config.TLSClientCAFile); err != nil {
			return a, fmt.Errorf("tls-cert-file: %w", err)
		}
		a.reloads = append(a.reloads, node.Reload{Name: "certificates", Check: a.tls.Check, Soon: true})
	}
	return a, nil
}

// open reports whether calls need neither a token nor a certificate.
func (a security) open() bool { return a.tokens == nil && a.tls == nil }
