package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"gatehouse/web/api"
)

// defaultSocket is where the daemon listens for the other verbs.
const defaultSocket = "/run/gatehouse/gatehouse.sock"

// client speaks to the daemon.
type client struct {
	http   http.Client
	socket string
}

// dial reads the --socket flag and gives the client with the arguments left.
func dial(verb string, args []string, more func(*flag.FlagSet)) (*client, []string, error) {
	fs := flag.NewFlagSet(verb, flag.ContinueOnError)
	socket := fs.String("socket", defaultSocket, "unix socket of the daemon")
	if more != nil {
		more(fs)
	}
	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}
	c := &client{socket: *socket}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", c.socket)
	}}
	return c, fs.Args(), nil
}

// call sends one request and decodes the answer into out, which may be nil.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gatehouse"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("the daemon does not answer on %s: is `gatehouse serve` running? (%w)", c.socket, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s", strings.TrimSpace(string(answer)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

func status(ctx context.Context, args []string, out io.Writer) error {
	asJSON := false
	c, _, err := dial("status", args, func(fs *flag.FlagSet) { fs.BoolVar(&asJSON, "json", false, "as JSON") })
	if err != nil {
		return err
	}
	var s api.Status
	if err := c.call(ctx, "GET", "/status", nil, &s); err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	_, err = io.WriteString(out, s.Text())
	return err
}

func confirm(ctx context.Context, args []string, out io.Writer) error {
	return act(ctx, "confirm", args, out, nil)
}

func undo(ctx context.Context, args []string, out io.Writer) error {
	return act(ctx, "undo", args, out, nil)
}

// act posts to a path named as the verb and prints the sentence that comes back.
func act(ctx context.Context, verb string, args []string, out io.Writer, in func(rest []string) (any, error)) error {
	c, rest, err := dial(verb, args, nil)
	if err != nil {
		return err
	}
	var body any
	if in != nil {
		if body, err = in(rest); err != nil {
			return err
		}
	} else if len(rest) > 0 {
		return fmt.Errorf("%s takes no arguments", verb)
	}
	var said string
	if err := c.call(ctx, "POST", "/"+verb, body, &said); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, said)
	return err
}

func passwd(ctx context.Context, args []string, out io.Writer) error {
	return act(ctx, "passwd", args, out, func(rest []string) (any, error) {
		if len(rest) != 1 {
			return nil, fmt.Errorf("usage: gatehouse passwd NAME")
		}
		return credentials(rest[0])
	})
}

func admin(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || args[0] != "add" {
		return fmt.Errorf("usage: gatehouse admin add NAME")
	}
	return act(ctx, "admin", args[1:], out, func(rest []string) (any, error) {
		if len(rest) != 1 {
			return nil, fmt.Errorf("usage: gatehouse admin add NAME")
		}
		return credentials(rest[0])
	})
}

// credentials asks for a password twice on a terminal, or reads one line.
func credentials(name string) (any, error) {
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) {
		line, err := io.ReadAll(io.LimitReader(os.Stdin, 1024))
		if err != nil {
			return nil, fmt.Errorf("read the password: %w", err)
		}
		return api.Credentials{Name: name, Password: strings.TrimRight(string(line), "\r\n")}, nil
	}
	var said [2]string
	for i, prompt := range []string{"New password: ", "Again: "} {
		fmt.Fprint(os.Stderr, prompt)
		b, err := term.ReadPassword(in)
		fmt.Fprintln(os.Stderr)
		if err != nil {
			return nil, fmt.Errorf("read the password: %w", err)
		}
		said[i] = string(b)
	}
	if said[0] != said[1] {
		return nil, fmt.Errorf("the two passwords differ; nothing was changed")
	}
	return api.Credentials{Name: name, Password: said[0]}, nil
}

func restore(ctx context.Context, args []string, out io.Writer) error {
	return act(ctx, "restore", args, out, func(rest []string) (any, error) {
		if len(rest) != 1 {
			return nil, fmt.Errorf("usage: gatehouse restore N")
		}
		var r api.Restore
		if _, err := fmt.Sscan(rest[0], &r.Revision); err != nil {
			return nil, fmt.Errorf("`%s` is not a revision number", rest[0])
		}
		return r, nil
	})
}

func setupCode(ctx context.Context, args []string, out io.Writer) error {
	var ask api.SetupCode
	c, _, err := dial("setup-code", args, func(fs *flag.FlagSet) {
		fs.BoolVar(&ask.New, "new", false, "make a new code; in SAFE MODE this starts over")
	})
	if err != nil {
		return err
	}
	var code string
	if err := c.call(ctx, "POST", "/setup-code", ask, &code); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, code)
	return err
}

func show(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || args[0] != "quarantine" {
		return fmt.Errorf("usage: gatehouse show quarantine [--json]")
	}
	asJSON := false
	c, rest, err := dial("show quarantine", args[1:], func(fs *flag.FlagSet) { fs.BoolVar(&asJSON, "json", false, "as JSON") })
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("usage: gatehouse show quarantine [--json]")
	}
	list := api.ShutOut{}
	for more := true; more; {
		var part api.ShutOut
		if err := c.call(ctx, "GET", fmt.Sprintf("/quarantine?from=%d", len(list)), nil, &part); err != nil {
			return err
		}
		list, more = append(list, part...), len(part) == api.ShutOutPart
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(list)
	}
	_, err = io.WriteString(out, list.Text(time.Now()))
	return err
}

func release(ctx context.Context, args []string, out io.Writer) error {
	return act(ctx, "release", args, out, func(rest []string) (any, error) {
		if len(rest) == 0 {
			return nil, fmt.Errorf("usage: gatehouse release ADDRESS [ADDRESS]")
		}
		return api.Release{Sources: rest}, nil
	})
}
