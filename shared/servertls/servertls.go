// Package servertls serves a certificate, and reads it again when its files change.
package servertls

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/reload"
)

// TLS holds a server's certificate and, if callers need a certificate too, the authorities that must have signed it.
// New connections use the files' current content. Open connections continue for as long as StillValid accepts their
// certificates.
type TLS struct {
	*reload.Files // Check reads the files again, and keeps their content in force if the new content is invalid

	// Mutual reports whether callers must show a certificate.
	Mutual bool

	// VersionMin is the oldest accepted version of TLS, in package tls's numbers. 0, or an older version, means 1.2. Set
	// it before Config is called.
	VersionMin uint16

	now atomic.Pointer[inForce]
}

// inForce is the content of the files. It does not change after it is made.
type inForce struct {
	*tls.Config
	authorities []*x509.Certificate // that may sign callers' certificates
	version     int64               // grows with each change
}

// Open reads PEM files: the certificate with its chain, its key, and, unless that path is empty, the authorities of
// callers' certificates. An error names the faulty file.
func Open(certificate, key, clientAuthorities string) (*TLS, error) {
	t := &TLS{Mutual: clientAuthorities != ""}
	paths := []string{certificate, key}
	if t.Mutual {
		paths = append(paths, clientAuthorities)
	}
	var err error
	if t.Files, err = reload.Open(paths, t.apply); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *TLS) apply(files []reload.File) error {
	pair, err := tls.X509KeyPair(files[0].Content, files[1].Content)
	if err != nil {
		return fmt.Errorf("certificate %s and key %s: %w", files[0].Path, files[1].Path, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	next := &inForce{Config: config, version: 1}
	if t.Mutual {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		for _, authority := range authoritiesIn(files[2].Content) {
			config.ClientCAs.AddCert(authority)
			next.authorities = append(next.authorities, authority)
		}
		if len(next.authorities) == 0 {
			return fmt.Errorf("%s holds no certificate of an authority", files[2].Path)
		}
	}
	if last := t.now.Load(); last != nil {
		next.version = last.version + 1
	}
	t.now.Store(next)
	return nil
}

// authoritiesIn returns the certificates of a PEM file, and skips certificates that cannot be parsed.
func authoritiesIn(content []byte) (found []*x509.Certificate) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = append(found, c)
		}
	}
	return found
}

// Errors of StillValid. The caller's certificate was valid when the connection began, so the caller
// should connect again with its current certificate.
var (
	ErrExpired   = errors.New("the certificate of this connection has expired: connect again")
	ErrAuthority = errors.New("the authority of this connection's certificate is no longer accepted: connect again")
)

// StillValid returns an error if the certificate of an open connection would not be accepted now.
// Call it for each request: TLS verifies a certificate only when a connection begins, and a
// connection may last for months. Without Mutual it always returns nil. It may be called
// concurrently and does not allocate.
func (t *TLS) StillValid(state *tls.ConnectionState, now time.Time) error {
	if !t.Mutual {
		return nil
	}
	err, authorities := ErrExpired, t.now.Load().authorities
	if state == nil {
		return err
	}
	for _, chain := range state.VerifiedChains {
		if expired(chain, now) {
			continue
		}
		err = ErrAuthority
		root := chain[len(chain)-1]
		if slices.ContainsFunc(authorities, root.Equal) {
			return nil
		}
	}
	return err
}

func expired(chain []*x509.Certificate, now time.Time) bool {
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}

// ValidUntil returns the time from which StillValid returns an error even if the files do not
// change. It returns the zero time if there is none.
func (t *TLS) ValidUntil(state *tls.ConnectionState) (last time.Time) {
	if !t.Mutual || state == nil {
		return time.Time{}
	}
	for _, chain := range state.VerifiedChains {
		first := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}

// OnlyValid passes on requests whose connections StillValid accepts. It answers other requests with
// 503 and closes their connection, so that the client connects again and shows its current
// certificate.
func (t *TLS) OnlyValid(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := t.StillValid(r.TLS, time.Now()); err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Version returns a number that changes whenever the files change.
func (t *TLS) Version() int64 { return t.now.Load().version }

// Config returns a configuration for these protocols, such as "h2" and "http/1.1". Each new connection uses the files'
// content at that moment.
func (t *TLS) Config(protocols ...string) *tls.Config {
	return t.following(protocols, func(*tls.Config) {})
}

// ConfigForAll is Config for a port that requires no certificate of callers. Use it for health, because probes usually
// have no certificate.
func (t *TLS) ConfigForAll(protocols ...string) *tls.Config {
	return t.following(protocols, func(config *tls.Config) { config.ClientAuth, config.ClientCAs = tls.NoClientCert, nil })
}

func (t *TLS) following(protocols []string, change func(*tls.Config)) *tls.Config {
	following := &tls.Config{MinVersion: max(tls.VersionTLS12, t.VersionMin), NextProtos: slices.Clone(protocols)}
	following.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := t.now.Load().Config.Clone()
		config.NextProtos, config.MinVersion = following.NextProtos, following.MinVersion
		change(config)
		return config, nil
	}
	return following
}
