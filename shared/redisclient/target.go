package redisclient

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Target is a configured Redis server, Cluster, or group of Sentinels.
type Target struct {
	Name    string // "" if there is a single target
	Options *redis.UniversalOptions
}

// Targets parses lists of URLs, separated by blanks. If there are several URLs, each has a name:
//
//	redis://10.0.0.1:6379
//	a=redis://10.0.0.1:6379 b=redis://10.0.0.2:6379
func Targets(lists ...string) ([]Target, error) {
	var targets []Target
	urls := Split(lists...)
	for i, nameAndURL := range urls {
		name, rawURL := SplitName(nameAndURL)
		if !strings.Contains(rawURL, "://") {
			return nil, fmt.Errorf("the Redis URL cannot be parsed: part %d of %d is no URL; blanks separate URLs, and a blank "+
				"within one is written %%20", i+1, len(urls))
		}
		targets = append(targets, Target{Name: name})
	}
	if err := CheckNames(targets, func(t Target) string { return t.Name }); err != nil {
		return nil, err
	}
	for i, nameAndURL := range urls {
		_, rawURL := SplitName(nameAndURL)
		options, err := Options(rawURL)
		if err != nil {
			return nil, WrapName(targets[i].Name, err)
		}
		targets[i].Options = options
	}
	return targets, nil
}

// Split returns the URLs in lists, with their names.
func Split(lists ...string) (urls []string) {
	for _, list := range lists {
		urls = append(urls, strings.Fields(list)...)
	}
	return urls
}

// SplitName splits "name=redis://…" into its name and URL. The name is "" if there is none.
func SplitName(nameAndURL string) (name, rawURL string) {
	name, rawURL, ok := strings.Cut(nameAndURL, "=")
	if !ok || strings.ContainsAny(name, ":/?@") { // a URL without a name whose parameters have a '='
		return "", nameAndURL
	}
	return name, rawURL
}

// Open returns a client of the target. The client connects when it is first used.
func (t Target) Open() redis.UniversalClient { return redis.NewUniversalClient(t.Options) }

// Where returns the target's addresses in readable form.
func (t Target) Where() string {
	addresses := strings.Join(t.Options.Addrs, ",")
	if t.Options.MasterName != "" {
		return t.Options.MasterName + " by " + addresses
	}
	return addresses
}

const nameBytesMax = 64

// CheckNames returns an error if the names of several targets are missing, malformed or equal. Keys
// are assigned to partitions by name.
func CheckNames[T any](targets []T, nameOf func(T) string) error {
	if len(targets) == 0 {
		return errors.New("the Redis URL names no server: want at least one")
	}
	seen := make(map[string]bool)
	for i, t := range targets {
		switch name := nameOf(t); {
		case name == "" && len(targets) > 1:
			return fmt.Errorf("partition %d of %d has no name: its keys would move with its address", i+1, len(targets))
		case len(name) > nameBytesMax || strings.ContainsFunc(name, notInName):
			return fmt.Errorf("partition %d of %d has a name of %d bytes that is not 1 to %d letters, digits, '.', '_' and '-'",
				i+1, len(targets), len(name), nameBytesMax)
		case seen[name]:
			return fmt.Errorf("partition %d of %d has the name of an earlier one", i+1, len(targets))
		default:
			seen[name] = true
		}
	}
	return nil
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
}

// WrapName adds the name of a partition to an error.
func WrapName(name string, err error) error {
	if name == "" {
		return err
	}
	return fmt.Errorf("partition %s: %w", name, err)
}

// masked replaces a password, as in package net/url.
const masked = "xxxxx"

// Mask returns a list of URLs without their passwords, for messages.
func Mask(list string) string {
	if list == "" {
		return ""
	}
	_, err := Targets(list)
	if file := (*FileError)(nil); err != nil && !errors.As(err, &file) {
		return masked // any part of the text may be the password
	}
	shown := Split(list)
	for i, nameAndURL := range shown {
		name, rawURL := SplitName(nameAndURL)
		u, err := url.Parse(rawURL)
		if err != nil {
			return masked
		}
		if shown[i] = u.Redacted(); name != "" {
			shown[i] = name + "=" + shown[i]
		}
	}
	return strings.Join(shown, " ")
}

// HoldsPassword reports whether a list of URLs contains a password. It returns false if a URL
// cannot be parsed, because Targets then returns an error.
func HoldsPassword(list string) bool {
	for _, nameAndURL := range Split(list) {
		_, rawURL := SplitName(nameAndURL)
		if u, err := url.Parse(rawURL); err == nil && u.User != nil {
			if _, ok := u.User.Password(); ok {
				return true
			}
		}
	}
	return false
}
