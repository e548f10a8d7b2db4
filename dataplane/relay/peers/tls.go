package peers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/shared/reload"
)

// TLS is a relay's certificate, and the authorities that sign its peers' certificates. New connections use the current
// contents of the files. Existing connections stay open for at most connectionAgeMax.
type TLS struct {
	*reload.Files // Check reads the files again; if they are invalid, the last valid contents stay in use

	current atomic.Pointer[identity]
}

// identity is the contents of the files at a time.
type identity struct {
	certificate tls.Certificate
	authorities *x509.CertPool
}

// OpenTLS reads PEM files: the certificate with its chain, its key, and the authorities of the peers' certificates. The
// relay presents the certificate both as a server and as a client.
func OpenTLS(certificate, key, authorities string) (*TLS, error) {
	t := new(TLS)
	files, err := reload.Open([]string{certificate, key, authorities}, t.apply)
	if err != nil {
		return nil, fmt.Errorf("relay peers: %w", err)
	}
	t.Files = files
	return t, nil
}

func (t *TLS) apply(files []reload.File) error {
	if len(files) != 3 {
		return errors.New("certificate, key and authorities must be one file each")
	}
	pair, err := tls.X509KeyPair(files[0].Content, files[1].Content)
	if err != nil {
		return fmt.Errorf("certificate %s and key %s: %w", files[0].Path, files[1].Path, err)
	}
	if !servesBothEnds(pair.Leaf) {
		return fmt.Errorf("certificate %s: extended key usage must allow both server and client authentication",
			files[0].Path)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(files[2].Content) {
		return fmt.Errorf("%s holds no certificate of an authority", files[2].Path)
	}
	t.current.Store(&identity{pair, pool})
	return nil
}

func servesBothEnds(leaf *x509.Certificate) bool {
	usage := leaf.ExtKeyUsage
	any := len(usage) == 0 && len(leaf.UnknownExtKeyUsage) == 0 || slices.Contains(usage, x509.ExtKeyUsageAny)
	return any || slices.Contains(usage, x509.ExtKeyUsageServerAuth) && slices.Contains(usage, x509.ExtKeyUsageClientAuth)
}

// server returns a configuration that requires clients to have a certificate issued to a name in names. It does not
// resume sessions, so each connection is checked against the current authorities.
func (t *TLS) server(names []string) *tls.Config {
	check := func(state tls.ConnectionState) error {
		for _, name := range names {
			if state.PeerCertificates[0].VerifyHostname(name) == nil {
				return nil
			}
		}
		return errors.New("the certificate has no peer's name")
	}
	base := tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAndVerifyClientCert, VerifyConnection: check}
	config := base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, config := t.current.Load(), base.Clone()
		config.Certificates, config.ClientCAs = []tls.Certificate{now.certificate}, now.authorities
		return config, nil
	}
	return config
}

// client returns a configuration that requires the server's certificate to be issued to name.
func (t *TLS) client(name string) *tls.Config {
	now := t.current.Load()
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, ServerName: name,
		Certificates: []tls.Certificate{now.certificate}, RootCAs: now.authorities}
}
