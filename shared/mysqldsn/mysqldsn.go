// Package mysqldsn reads the data source name of a MySQL database, in the form of github.com/go-sql-driver/mysql with
// three more parameters:
//
//	user:password@tcp(host:3306)/database?tls=true&tlsCA=/etc/weir/ca.pem
//
//	tlsCA    file of PEM certificates, of which one must have signed the server's
//	tlsCert  file of the client's own PEM certificate, with tlsKey
//	tlsKey   file of its private key
//
// Each of them turns TLS on, unless tls sets another kind of TLS. The server's name is checked against its certificate,
// except with tls=skip-verify. Files are read once, when the name is parsed.
package mysqldsn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/strict"
)

const want = "want user:password@tcp(host:port)/database"

// Parse returns a configuration of its own. No error contains the password, or any other value of the name except the
// server's address and the paths of its files.
func Parse(dsn string) (*mysql.Config, error) {
	fail := func(format string, args ...any) (*mysql.Config, error) {
		return nil, fmt.Errorf("the MySQL DSN cannot be read, %s: %w", want, fmt.Errorf(format, args...))
	}
	if i := strings.IndexFunc(dsn, unprintable); i >= 0 {
		return fail("byte %d of it is a control character or a byte order mark", i+1)
	}
	if strings.TrimSpace(dsn) != dsn {
		return fail("it begins or ends with a blank")
	}
	dsn, err := escaped(dsn)
	if err != nil {
		return fail("%w", err)
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return fail("%s", withoutValues(dsn, err))
	}
	switch config.Net {
	case "tcp":
		if err := strict.Address("its address", config.Addr); err != nil {
			return fail("%w", err)
		}
	case "unix":
	default:
		return fail("its protocol is neither tcp nor unix") // it may be a part of a password
	}
	if config.DBName == "" {
		return fail("it names no database")
	}
	if err := useFiles(config); err != nil {
		return nil, fmt.Errorf("the MySQL DSN cannot be used: %w", err)
	}
	return config, nil
}

// Mask returns a DSN for people to read: without the password.
func Mask(dsn string) string {
	if dsn == "" {
		return ""
	}
	config, err := Parse(dsn)
	if err != nil {
		return masked // any part of it may be the password
	}
	if config.Passwd != "" {
		config.Passwd = masked
	}
	return config.FormatDSN()
}

// HoldsPassword reports whether a DSN has a password in it. It returns false for a DSN that cannot be parsed, which
// Parse rejects.
func HoldsPassword(dsn string) bool {
	config, err := Parse(dsn)
	return err == nil && config.Passwd != ""
}

// masked replaces a password, as package url does.
const masked = "xxxxx"

func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufeff' }

// Matches of the database's name and the parameters, with or without an address in parentheses before them.
var (
	behindAddress = regexp.MustCompile(`(^|@)[a-z0-9]*\([^()]*\)/[^/?()]*(\?|$)`)
	behindNetwork = regexp.MustCompile(`(^|@)[a-z0-9]*/[^/?()]*(\?|$)`)
)

// escaped lets people write paths of files without %2F. The driver takes the last slash of all for the slash before the
// database's name, and a plus for a blank. It also refuses what the driver reads leniently.
func escaped(dsn string) (string, error) {
	at := behindAddress.FindStringIndex(dsn)
	if at == nil {
		at = behindNetwork.FindStringIndex(dsn)
	}
	if at == nil || at[1] == len(dsn) {
		return dsn, nil
	}
	pairs := strings.Split(dsn[at[1]:], "&")
	seen := make(map[string]bool)
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if seen[name] {
			return "", errors.New("one of its parameters occurs twice")
		}
		seen[name] = true
		if err := checkParameter(name, value); err != nil {
			return "", err
		}
		if !strings.Contains(dsn[at[1]:], "@") { // else the name may be a part of a password
			if err := checkName(name); err != nil {
				return "", err
			}
		}
		if slices.Contains(fileParameters, name) {
			value = strings.ReplaceAll(value, "+", "%2B")
			if _, err := url.QueryUnescape(value); err != nil {
				value = strings.ReplaceAll(value, "%", "%25")
			}
			pairs[i] = name + "=" + value
		}
		pairs[i] = strings.ReplaceAll(pairs[i], "/", "%2F")
	}
	return dsn[:at[1]] + strings.Join(pairs, "&"), nil
}

// fileParameters name a file.
var fileParameters = []string{"tlsCA", "tlsCert", "tlsKey"}

const (
	timeoutMax = time.Hour
	packetMax  = 1 << 30
)

// checkParameter rejects numbers that the driver would read leniently, and names that it would set as variables of the
// session, at which every connection would fail. Errors have no values, because a value may be a part of a password.
func checkParameter(name, value string) error {
	var err error
	switch {
	case slices.Contains(fileParameters, name):
		if value == "" {
			err = fmt.Errorf("%s is empty, want the path of a file", name)
		}
	case name == "timeout" || name == "readTimeout" || name == "writeTimeout":
		if _, wrong := strict.TimeDuration(name, value, 0, timeoutMax); wrong != nil {
			err = fmt.Errorf("%s is no duration such as 30s (0s to %v)", name, timeoutMax)
		}
	case name == "maxAllowedPacket":
		if _, wrong := strict.Int(name, value, 0, packetMax); wrong != nil {
			err = fmt.Errorf("%s is no number in decimal digits (0 to %d)", name, packetMax)
		}
	case name != "tls" && strings.HasPrefix(strings.ToLower(name), "tls"):
		err = errors.New("an unknown parameter begins with tls: there are tls, tlsCA, tlsCert and tlsKey")
	}
	return err
}

// checkName returns an error for a parameter that looks like a misspelt parameter of the driver or of this package. The
// driver would set it as a variable of each session, which fails at every connection.
func checkName(name string) error {
	known := slices.Concat(slices.Sorted(maps.Keys(driverParameters)), otherParameters, fileParameters)
	if slices.Contains(known, name) || name == "wait_timeout" { // which the server has
		return nil
	}
	for _, k := range known {
		if strict.Misspells(name, k) {
			return fmt.Errorf("unknown parameter %s, did you mean %s?", strict.Quote(name), k)
		}
	}
	return nil
}

// withoutValues returns the driver's errors that are fixed sentences. Other errors of the driver quote the unreadable
// text, so withoutValues replaces them.
func withoutValues(dsn string, err error) string {
	if text := err.Error(); strings.HasPrefix(text, "invalid DSN: ") {
		return text
	}
	if strings.HasPrefix(err.Error(), "default addr for network ") {
		return "behind the user and the password it has no tcp(host:port) and no unix(path)"
	}
	const unknown = "a parameter after the database's name is not understood"
	_, parameters, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for pair := range strings.SplitSeq(parameters, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if values := driverParameters[name]; values != "" {
			if _, wrong := mysql.ParseDSN("tcp(a:1)/b?" + pair); wrong != nil {
				return unknown + ": " + name + " is not " + values
			}
		}
	}
	return unknown
}

// driverParameters are the values of the driver's parameters that people set, by name. Errors show only these names,
// because any other name may be a part of a password.
var driverParameters = map[string]string{
	"tls": "true, false, skip-verify or preferred", "parseTime": "true or false", "interpolateParams": "true or false",
	"multiStatements": "true or false", "compress": "true or false", "checkConnLiveness": "true or false",
	"rejectReadOnly": "true or false", "clientFoundRows": "true or false", "allowNativePasswords": "true or false",
	"allowCleartextPasswords": "true or false", "loc": "a time zone such as UTC",
}

// otherParameters are the other parameters of the driver.
var otherParameters = []string{
	"allowAllFiles", "allowFallbackToPlaintext", "allowOldPasswords", "charset", "collation", "columnsWithAlias",
	"connectionAttributes", "maxAllowedPacket", "readTimeout", "serverPubKey", "timeTruncate", "timeout", "writeTimeout",
}

// useFiles removes this package's own parameters, because the driver would set them as variables of the session.
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
