// Package servertls is a server's certificate, read again when its files change.
package servertls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/shared/reload"
)

// TLS is a server's certificate, and if callers need one too, who must have signed theirs. New connections are made
// with what the files hold now; those that exist go on.
type TLS struct {
	*reload.Files // Check reads the files again, and keeps what is in force if they are at fault

	// Mutual is true when callers must show a certificate.
	Mutual bool

	// VersionMin is the oldest version of TLS that is spoken, as package tls numbers them; 0 is 1.2, and so is anything
	// older. Set it before Config is called.
	VersionMin uint16

	now atomic.Pointer[tls.Config]
}

// Open reads PEM files: the certificate with its chain, its key, and, unless that path is empty, the authorities of
// callers' certificates. An error names the file at fault.
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
	if t.Mutual {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(files[2].Content) {
			return fmt.Errorf("%s holds no certificate of an authority", files[2].Path)
		}
	}
	t.now.Store(config)
	return nil
}

// Config is a configuration that for each connection is what the files hold then, for these protocols: "h2",
// "http/1.1".
func (t *TLS) Config(protocols ...string) *tls.Config {
	return t.following(protocols, func(*tls.Config) {})
}

// ConfigForAll is Config for a port that asks no caller for a certificate: health, which probes ask for that have none.
func (t *TLS) ConfigForAll(protocols ...string) *tls.Config {
	return t.following(protocols, func(config *tls.Config) { config.ClientAuth, config.ClientCAs = tls.NoClientCert, nil })
}

func (t *TLS) following(protocols []string, change func(*tls.Config)) *tls.Config {
	following := &tls.Config{MinVersion: max(tls.VersionTLS12, t.VersionMin), NextProtos: slices.Clone(protocols)}
	following.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := t.now.Load().Clone()
		config.NextProtos, config.MinVersion = following.NextProtos, following.MinVersion
		change(config)
		return config, nil
	}
	return following
}
