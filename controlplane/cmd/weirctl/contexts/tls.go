package contexts

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS returns the configuration with which weirctl and the API authenticate each other.
func (c *Flags) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca: %s holds no certificate of an authority", c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("--cert and --key go together: set both, or neither")
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
