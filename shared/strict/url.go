package strict

import (
	"fmt"
	"net/url"
	"strings"
)

// URL returns an error if text is not the URL of a server, to which paths can be appended. The URL has the scheme http
// or https, a host, optionally a port, and no user, query or fragment. No error repeats a text with a user or a query,
// which may hold a secret.
func URL(field, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		value := Quote(text)
		if strings.ContainsAny(text, "@?") {
			value = "not shown, because it may have a password"
		}
		return fmt.Errorf("%s is not a URL like http://host:port: the value is %s", field, value)
	}
	if u.User != nil {
		return fmt.Errorf("%s is not a URL like http://host:port: it has a user", field)
	}
	if u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		return fmt.Errorf("%s has a query or a fragment, want a URL like http://host:port", field)
	}
	if err := Host("the host of "+field, u.Hostname()); err != nil {
		return err
	}
	if port := u.Port(); port != "" {
		if _, err := Int("the port of "+field, port, 1, portMax); err != nil {
			return err
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return fmt.Errorf("the port of %s is empty (1 to %d)", field, portMax)
	}
	return nil
}
