package check

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/weirhq/weir/dataplane/relay/peers"
)

// relayPort is the port at which a node receives calls of other regions' relays.
const relayPort = "7301"

// Nodes with MySQL relay their region, name the nodes with MySQL of the other region as peers, and reach them and
// MySQL. The node without MySQL has neither, and no network beyond its region's.
func TestComposeRelays(t *testing.T) {
	project := composeProject(t)
	relays := make(map[string][]string) // by region, the addresses of its nodes with MySQL
	for name, service := range nodesOf(project) {
		if _, ok := service.Environment["WEIR_MYSQL_DSN_FILE"]; ok {
			region := *service.Environment["WEIR_REGION"]
			relays[region] = append(relays[region], name+":"+relayPort)
		}
	}
	if len(relays["eu"]) != 2 || len(relays["us"]) != 1 {
		t.Fatalf("nodes with MySQL: %v, want two in eu and one in us", relays)
	}
	for name, service := range nodesOf(project) {
		region, networks := *service.Environment["WEIR_REGION"], slices.Sorted(maps.Keys(service.Networks))
		if !slices.Contains(relays[region], name+":"+relayPort) {
			if !slices.Equal(networks, []string{region}) || len(service.Secrets) != 0 || len(service.DependsOn) != 0 {
				t.Errorf("%s has no MySQL, and the networks %v, secrets %v, dependencies %v",
					name, networks, service.Secrets, service.DependsOn)
			}
			continue
		}
		other := map[string]string{"eu": "us", "us": "eu"}[region]
		slices.Sort(relays[other])
		if got, want := *service.Environment["WEIR_RELAY_PEERS"], other+"="+strings.Join(relays[other], ","); got != want {
			t.Errorf("%s: peers are %q, want %q", name, got, want)
		}
		if got := *service.Environment["WEIR_RELAY_PEERS_LISTEN"]; got != "0.0.0.0:"+relayPort {
			t.Errorf("%s hears its peers at %q, and they call %s", name, got, relayPort)
		}
		if !slices.Equal(networks, []string{region, "global"}) && !slices.Equal(networks, []string{"global", region}) {
			t.Errorf("%s: networks %v do not reach both its Redis and MySQL", name, networks)
		}
	}
}

// Each region's relays have a certificate that their peers accept, in both directions, for this region only.
func TestComposeCertificates(t *testing.T) {
	secrets := composeSecrets(t)
	for name, service := range nodesOf(composeProject(t)) {
		if _, ok := service.Environment["WEIR_RELAY_PEERS"]; !ok {
			continue
		}
		file := func(variable string) string {
			return strings.Replace(*service.Environment["WEIR_RELAY_PEERS_"+variable], "/run/secrets", secrets, 1)
		}
		if _, err := peers.OpenTLS(file("CERT_FILE"), file("KEY_FILE"), file("CA_FILE")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		block, _ := pem.Decode(read(t, file("CERT_FILE")))
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(read(t, file("CA_FILE")))
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := certificate.Verify(x509.VerifyOptions{DNSName: *service.Environment["WEIR_REGION"], Roots: authorities,
				KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(certificate.DNSNames) != 1 || certificate.IsCA {
			t.Errorf("%s: issued to %v, an authority: %v", name, certificate.DNSNames, certificate.IsCA)
		}
	}
	for _, service := range composeProject(t).Services {
		for _, secret := range service.Secrets {
			if filepath.Base(secret.Source) == "relay-authority-key" {
				t.Errorf("%s has the authority's key", service.Name)
			}
		}
	}
}

// If secrets.sh cannot make a file, it leaves none, and shows the reason.
func TestComposeSecretsFail(t *testing.T) {
	for want, openssl := range map[string]string{
		"openssl is missing":                         "",
		"secrets/relay-authority-key cannot be made": "#!/bin/sh\nexit 1\n",
	} {
		dir := t.TempDir()
		for _, program := range []string{"dirname", "mkdir", "chmod", "od", "tr", "cat"} {
			path, err := exec.LookPath(program)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(dir, program)); err != nil {
				t.Fatal(err)
			}
		}
		script := string(read(t, filepath.Join(root, "deploy/compose/secrets.sh")))
		for name, content := range map[string]string{"secrets.sh": script, "openssl": openssl} {
			if content == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(dir, "secrets.sh"))
		cmd.Env = []string{"PATH=" + dir}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "secrets.sh: "+want) {
			t.Errorf("%v, want %q in\n%s", err, want, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "secrets", "relay-authority-key")); err == nil {
			t.Errorf("%s: the file is kept", want)
		}
	}
}

func nodesOf(project *types.Project) map[string]types.ServiceConfig {
	nodes := maps.Clone(map[string]types.ServiceConfig(project.Services))
	maps.DeleteFunc(nodes, func(_ string, s types.ServiceConfig) bool { return s.Image != "weir-node" })
	return nodes
}
