package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/alecthomas/kong"
	"github.com/mr-tron/base58"

	"github.com/weirhq/weir/shared/strict/flags"
)

// identityArgument is the first argument that makes weir-control print the public half of Restate's request identity,
// and make the key if there is none.
const identityArgument = "identity-key"

// identity is the command line after it.
type identity struct {
	Out string `required:"" type:"path" placeholder:"FILE" help:"PEM file with the private key, for request-identity-private-key-pem-file of Restate. If the file does not exist, it is created with a new key, readable by its owner only."`
}

func identityKey(args []string, stdout, stderr io.Writer) int {
	i, done, err := parseIdentity(args, stdout, stderr)
	if done {
		return exitOK
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "weir-control: %v\nTry weir-control %s --help.\n", err, identityArgument)
		return exitUsage
	}
	public, err := openIdentity(i.Out)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "weir-control: %v\n", err)
		return exitFailure
	}
	_, _ = fmt.Fprintln(stdout, public)
	return exitOK
}

func parseIdentity(args []string, stdout, stderr io.Writer) (i identity, done bool, err error) {
	parser, err := kong.New(&i, flags.Strict(), kong.Name("weir-control "+identityArgument), kong.Writers(stdout, stderr),
		kong.Description("Prints the public key that Restate's requests are signed with, for --restate-identity-key."))
	if err == nil {
		_, done, err = flags.Parse(parser, args)
	}
	return i, done, err
}

// openIdentity returns the public half of the key in a file, in the form that Restate gives it. A key that is there is
// kept: Restate may sign with it already.
func openIdentity(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = createIdentity(path)
	}
	if err != nil {
		return "", fmt.Errorf("the identity key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", fmt.Errorf("%s is not a PEM file: give another one, or remove it", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return "", fmt.Errorf("%s holds a key of another kind, and Restate signs with ed25519: name a file that does not "+
			"exist, and this command creates a key in it", path)
	}
	return "publickeyv1_" + base58.Encode(private.Public().(ed25519.PublicKey)), nil
}

// createIdentity never overwrites a file.
func createIdentity(path string) ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(text)
	return text, errors.Join(err, f.Sync(), f.Close())
}
