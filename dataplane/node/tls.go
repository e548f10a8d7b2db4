package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/shared/reload"
)

// TLS is a certificate, and if callers need one too, who must have signed theirs. New
// connections are made with what the files hold now; those that exist go on. Nil TLS
// is none.
type TLS struct {
	*reload.Files // Check reads the files again, and keeps what is in force if they are at fault

	// Callers must show a certificate.
	Mutual bool

	http, grpc atomic.Pointer[tls.Config]
}

// OpenTLS reads PEM files: the certificate with its chain, its key, and, unless that
// path is empty, the authorities of callers' certificates.
func OpenTLS(certificate, key, clientAuthorities string) (*TLS, error) {
	t := &TLS{Mutual: clientAuthorities != ""}
	paths := []string{certificate, key}
	if t.Mutual {
		paths = append(paths, clientAuthorities)
	}
	files, err := reload.Open(paths, t.apply)
	if err != nil {
		return nil, err
	}
	t.Files = files
	return t, nil
}

func (t *TLS) apply(files []reload.File) error {
	pair, err := tls.X509KeyPair(files[0].Content, files[1].Content)
	if err != nil {
		return fmt.Errorf("certificate %s and key %s: %w", files[0].Path, files[1].Path, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"}}
	if t.Mutual {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(files[2].Content) {
			return fmt.Errorf("%s: %w", files[2].Path, errors.New("holds no certificate of an authority"))
		}
	}
	t.http.Store(config)
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	t.grpc.Store(config)
	return nil
}

// following is a configuration that for each connection is what now holds.
func following(now *atomic.Pointer[tls.Config]) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         now.Load().NextProtos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.Load(), nil },
	}
}
