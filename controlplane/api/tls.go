package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/weirhq/weir/shared/reload"
)

// TLS is the API's certificate, and if callers need one too, who must have signed
// theirs. New connections are made with what the files hold now; those that exist go on.
type TLS struct {
	*reload.Files // Check reads the files again, and keeps what is in force if they are at fault

	mutual bool
	now    atomic.Pointer[tls.Config]
}

// OpenTLS reads PEM files: the certificate with its chain, its key, and, unless that
// path is empty, the authorities of callers' certificates.
func OpenTLS(certificate, key, clientAuthorities string) (*TLS, error) {
	t := &TLS{mutual: clientAuthorities != ""}
	paths := []string{certificate, key}
	if t.mutual {
		paths = append(paths, clientAuthorities)
	}
	var err error
	t.Files, err = reload.Open(paths, t.apply)
	return t, err
}

func (t *TLS) apply(files []reload.File) error {
	pair, err := tls.X509KeyPair(files[0].Content, files[1].Content)
	if err != nil {
		return fmt.Errorf("certificate %s and key %s: %w", files[0].Path, files[1].Path, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"}}
	if t.mutual {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(files[2].Content) {
			return fmt.Errorf("%s holds no certificate of an authority", files[2].Path)
		}
	}
	t.now.Store(config)
	return nil
}

// Listener makes TLS of what l accepts.
func (t *TLS) Listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.now.Load(), nil },
	})
}
