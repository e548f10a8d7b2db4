package strict

import (
	"strings"
	"testing"
)

// Paths can be appended to the URL of a server. Errors do not repeat the URL.
func TestURL(t *testing.T) {
	for text, says := range map[string]string{
		"http://localhost:7080": "", "https://weir.example": "", "http://[::1]:7080/weir": "", "HTTP://a:1": "",
		"":                        "is not a URL",
		"a:7080":                  "is not a URL",
		"ftp://a":                 "is not a URL",
		"http://":                 "is not a URL",
		"http:a:7080":             "is not a URL",
		"http://bob:s3cret@a":     "has a user",
		"http://a:1?token=s3cret": "has a query",
		"http://a:1?":             "has a query",
		"http://a:1#":             "a fragment",
		"http://a:":               "the port of --api is empty",
		"http://a:0":              "the port of --api",
		"http://a:65536":          "the port of --api",
		"http://a,b:1":            "the host of --api",
	} {
		err := URL("--api", text)
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, seed := range []string{"http://a:1", "https://[::1]/x", "http://a?b#c", "://", "http://a:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if URL("--api", text) == nil && (strings.ContainsAny(text, "?#") || !strings.HasPrefix(strings.ToLower(text), "http")) {
			t.Errorf("%q is taken", text)
		}
	})
}
