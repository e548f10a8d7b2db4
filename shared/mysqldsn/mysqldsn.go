// Package mysqldsn reads the data source name of a MySQL database, in the form of
// github.com/go-sql-driver/mysql and with three parameters more:
//
//	user:password@tcp(host:3306)/database?tls=true&tlsCA=/etc/weir/ca.pem
//
//	tlsCA    file of PEM certificates: the server's must be signed by one of them
//	tlsCert  file of the client's own PEM certificate, with tlsKey
//	tlsKey   file of its private key
//
// Each of them turns TLS on, unless tls says what kind of it. The server's name is
// checked against its certificate, except with tls=skip-verify. Files are read once,
// when the name is parsed.
package mysqldsn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
)

const want = "want user:password@tcp(host:port)/database"

// Parse returns a configuration of its own. No error holds the password, or any other
// value of the name but the paths of its files.
func Parse(dsn string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(escapeSlashes(dsn))
	if err != nil {
		return nil, fmt.Errorf("the MySQL DSN cannot be read, %s: %s", want, withoutValues(err))
	}
	if err := useFiles(config); err != nil {
		return nil, fmt.Errorf("the MySQL DSN cannot be used: %w", err)
	}
	return config, nil
}

// escapeSlashes spares people %2F in paths: the driver takes the last slash of all for
// the one before the database's name.
func escapeSlashes(dsn string) string {
	at := strings.LastIndexByte(dsn, '@') + 1
	if i := strings.IndexByte(dsn[at:], '?'); i >= 0 {
		return dsn[:at+i] + strings.ReplaceAll(dsn[at+i:], "/", "%2F")
	}
	return dsn
}

// withoutValues keeps those of the driver's errors that are fixed sentences. The others
// quote what they could not read.
func withoutValues(err error) string {
	if text := err.Error(); strings.HasPrefix(text, "invalid DSN: ") {
		return text
	}
	return "a parameter after the database's name is not understood"
}

// useFiles takes our parameters out: the driver would set them as variables of the
// session.
func useFiles(config *mysql.Config) error {
	take := func(name string) string {
		value := config.Params[name]
		delete(config.Params, name)
		return value
	}
	ca, cert, key := take("tlsCA"), take("tlsCert"), take("tlsKey")
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	switch config.TLSConfig {
	case "", "true", "skip-verify":
	case "false":
		return errors.New("tls=false contradicts the files of TLS")
	default: // preferred would go on without TLS, and a name stands for a configuration
		return errors.New("with files of TLS, tls must be true or skip-verify")
	}
	if (cert == "") != (key == "") {
		return errors.New("tlsCert and tlsKey go together")
	}
	made := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: serverName(config.Addr),
		InsecureSkipVerify: config.TLSConfig == "skip-verify", //nolint:gosec // as asked for
	}
	if ca != "" {
		pool, err := readCA(ca)
		if err != nil {
			return err
		}
		made.RootCAs = pool
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("tlsCert %s with tlsKey %s: %w", cert, key, err)
		}
		made.Certificates = []tls.Certificate{pair}
	}
	config.TLSConfig, config.TLS = "", made
	return nil
}

func readCA(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tlsCA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tlsCA: %s holds no PEM certificate", path)
	}
	return pool, nil
}

func serverName(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
