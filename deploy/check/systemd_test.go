package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hardening has the settings that each unit must have.
var hardening = map[string]string{
	"DynamicUser": "yes", "UMask": "0077", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "NoNewPrivileges": "yes",
	"ProtectSystem": "strict", "ProtectHome": "yes", "ProtectProc": "invisible", "ProtectClock": "yes", "ProtectHostname": "yes",
	"ProtectControlGroups": "yes", "ProtectKernelLogs": "yes", "ProtectKernelModules": "yes", "ProtectKernelTunables": "yes",
	"PrivateDevices": "yes", "PrivateTmp": "yes", "PrivateUsers": "yes", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
	"RestrictNamespaces": "yes", "RestrictRealtime": "yes", "RestrictSUIDSGID": "yes", "LockPersonality": "yes", "SystemCallArchitectures": "native",
}

// otherKeys are all other keys that units use.
var otherKeys = []string{"Description", "Documentation", "Wants", "After", "StartLimitIntervalSec", "Type", "ExecStart", "LoadCredential", "Environment",
	"Restart", "RestartSec", "RestartPreventExitStatus", "TimeoutStopSec", "LimitNOFILE", "StateDirectory", "StateDirectoryMode", "WorkingDirectory",
	"MemoryDenyWriteExecute", "SystemCallFilter", "SystemCallErrorNumber", "WantedBy"}

// unit is a unit file: by key, the values in their order.
type unit map[string][]string

func readUnit(t *testing.T, path string) unit {
	t.Helper()
	u := make(unit)
	section := ""
	for line := range strings.Lines(string(read(t, path))) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !ok || section == "":
			t.Errorf("%s: %q is no setting", path, line)
		default:
			if _, hard := hardening[key]; !hard && !slices.Contains(otherKeys, key) {
				t.Errorf("%s: the key %s is not known", path, key)
			}
			u[key] = append(u[key], value)
		}
	}
	return u
}

// Each unit is restricted, restarts after failures but not after configuration errors, gets its secrets as credentials
// alone, and starts its program with options that the program accepts.
func TestUnits(t *testing.T) {
	for _, path := range files(t, "deploy/systemd/*.service") {
		u := readUnit(t, path)
		for key, value := range hardening {
			if !slices.Equal(u[key], []string{value}) {
				t.Errorf("%s: %s is %q, want %q", path, key, u[key], value)
			}
		}
		words := strings.Fields(u["ExecStart"][0])
		program := filepath.Base(words[0])
		if program == "restate-server" {
			continue
		}
		if !slices.Equal(u["RestartPreventExitStatus"], []string{"2"}) {
			t.Errorf("%s: is restarted with a configuration at fault", path)
		}
		dir := t.TempDir()
		credentials := credentials(t, path, u, dir)
		env := make(map[string]string)
		for _, assignment := range u["Environment"] {
			name, value, _ := strings.Cut(assignment, "=")
			if file, ok := strings.CutPrefix(value, "%d/"); ok && !credentials[file] {
				t.Errorf("%s: %s: there is no such credential", path, assignment)
			}
			env[name] = strings.Replace(value, "%d", dir, 1)
		}
		var args []string
		for _, word := range words[1:] {
			args = append(args, strings.Replace(word, "/etc/weir", filepath.Join(root, "deploy/systemd"), 1))
		}
		checkProgram(t, path, program, args, env, dir)
	}
}

// credentials writes the files that systemd would hand over.
func credentials(t *testing.T, path string, u unit, dir string) map[string]bool {
	t.Helper()
	content := map[string]string{"redis-url": "redis://:x@redis:6379", "mysql-dsn": "weir:x@tcp(mysql:3306)/weir", "tokens": "", "admin-token": "x"}
	made := make(map[string]bool)
	for _, credential := range u["LoadCredential"] {
		name, from, _ := strings.Cut(credential, ":")
		text, known := content[name]
		if !known || !strings.HasPrefix(from, "/etc/weir/secrets/") {
			t.Errorf("%s: the credential %s", path, credential)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		made[name] = true
	}
	return made
}
