package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/servertls"
)

// reloadEvery bounds the time until a changed certificate, or the removal of an authority, takes
// effect.
const reloadEvery = 500 * time.Millisecond

// secure puts TLS on the API's listener, where it is configured.
func (p *process) secure() error {
	p.onlyValid = func(h http.Handler) http.Handler { return h }
	p.stillValid = func(*tls.ConnectionState) error { return nil }
	if p.config.APITLSCert == "" {
		return nil
	}
	certificate, err := servertls.Open(p.config.APITLSCert, p.config.APITLSKey, p.config.APIClientCA)
	if err != nil {
		return fmt.Errorf("api-tls-cert: %w", err)
	}
	p.onlyValid = certificate.OnlyValid
	p.stillValid = func(state *tls.ConnectionState) error { return certificate.StillValid(state, time.Now()) }
	p.apiListener = tls.NewListener(p.apiListener, certificate.Config("h2", "http/1.1"))
	p.work.Go(func() {
		controlplane.Every(p.ctx, reloadEvery, func(context.Context) error {
			switch changed, err := certificate.Check(); {
			case err != nil:
				p.log.Error("the changed certificate of the API cannot be used; the previous one stays in force", "error", err)
			case changed:
				p.log.Info("the changed certificate of the API is in force")
			}
			return nil
		})
	})
	return nil
}
