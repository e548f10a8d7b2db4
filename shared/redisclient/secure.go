package redisclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/strict"
)

// FileError is returned if a file named in a Redis URL cannot be used. It never contains the file's
// content.
type FileError struct {
	Parameter string // name in the URL, such as "tls_ca_file"
	Err       error  // contains the path of the file
}

func (e *FileError) Error() string { return e.Parameter + ": " + e.Err.Error() }

// Unwrap returns the reason without the parameter.
func (e *FileError) Unwrap() error { return e.Err }

// parameters are the parameters of a Redis URL that go-redis does not have.
type parameters struct {
	addresses []string
	cluster   bool
	master    string

	passwordFile                       string
	sentinelUsername, sentinelPassword string
	caFile, certFile, keyFile          string
	serverName                         string
}

// takeParameters removes Weir's own parameters from q and returns them. q keeps go-redis's
// parameters.
func takeParameters(q url.Values) (p parameters, err error) {
	if err := checkParameters(q); err != nil {
		return p, err
	}
	take := func(name string) string {
		defer q.Del(name)
		return q.Get(name)
	}
	p.addresses = q["addr"]
	q.Del("addr")
	p.cluster = take("cluster") == "true"
	p.master = take("master")
	if p.cluster && p.master != "" {
		return p, errors.New("cluster and master both set: set only one")
	}
	p.passwordFile = take("password_file")
	p.sentinelUsername = take("sentinel_username")
	if path := take("sentinel_password_file"); path != "" {
		if p.sentinelPassword, err = readSecret("sentinel_password_file", path); err != nil {
			return p, fmt.Errorf("a bad file: %w", err)
		}
	}
	p.caFile, p.certFile, p.keyFile = take("tls_ca_file"), take("tls_cert_file"), take("tls_key_file")
	p.serverName = take("tls_server_name")
	return p, nil
}

func (p parameters) severalServers() bool { return len(p.addresses) > 0 || p.cluster || p.master != "" }

// secure sets up authentication in both directions, from the files in p.
func (p parameters) secure(o *redis.Options) error {
	if err := p.secureTLS(o.TLSConfig); err != nil {
		return err
	}
	if p.passwordFile == "" {
		return nil
	}
	if o.Password != "" {
		return errors.New("a password and a password_file are both set: set only one")
	}
	if _, err := readSecret("password_file", p.passwordFile); err != nil {
		return err
	}
	username, path := o.Username, p.passwordFile
	o.CredentialsProviderContext = func(context.Context) (string, string, error) {
		password, err := readSecret("password_file", path)
		return username, password, err
	}
	return nil
}

func (p parameters) secureTLS(config *tls.Config) error {
	if config == nil {
		for name, value := range map[string]string{"tls_ca_file": p.caFile, "tls_cert_file": p.certFile,
			"tls_key_file": p.keyFile, "tls_server_name": p.serverName} {
			if value != "" {
				return fmt.Errorf("%s needs TLS: begin the URL with rediss://", name)
			}
		}
		return nil
	}
	config.MinVersion = tls.VersionTLS12
	if p.serverName != "" {
		config.ServerName = p.serverName
	}
	if p.caFile != "" {
		pem, err := os.ReadFile(p.caFile)
		if err != nil {
			return &FileError{"tls_ca_file", err}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return &FileError{"tls_ca_file", fmt.Errorf("%s holds no certificate", p.caFile)}
		}
	}
	if (p.certFile == "") != (p.keyFile == "") {
		return errors.New("tls_cert_file and tls_key_file: set both, or neither")
	}
	if p.certFile == "" {
		return nil
	}
	if _, err := p.certificate(nil); err != nil {
		return err
	}
	config.GetClientCertificate = p.certificate
	return nil
}

// certificate reads the client's certificate for each connection, because certificates expire and
// are replaced.
func (p parameters) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return nil, &FileError{"tls_cert_file", fmt.Errorf("%s with %s: %w", p.certFile, p.keyFile, err)}
	}
	return &pair, nil
}

func readSecret(parameter, path string) (string, error) {
	secret, err := strict.Line(parameter, path)
	if err != nil {
		return "", &FileError{parameter, errors.Unwrap(err)}
	}
	return secret, nil
}
