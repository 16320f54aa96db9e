package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/internal/dial"
)

// s3 is a bucket of S3-compatible storage, or the part of one below a prefix.
type s3 struct {
	lang.S3
	client func() (*minio.Core, error) // made by the first call: a run that finds all results here needs none
}

const (
	s3Attempts = 4        // to send a request that the network loses, or for which the server is busy
	s3Part     = 16 << 20 // bytes of a part; objects up to this size have none
	s3Parts    = 10_000   // most of an object
	s3Threads  = 4        // parts of an object that are sent at once
)

func newS3(at lang.S3, parallel int) s3 {
	return s3{at, sync.OnceValues(func() (*minio.Core, error) {
		transport, err := minio.DefaultTransport(at.TLS)
		if err != nil {
			return nil, err
		}
		transport.MaxIdleConnsPerHost, transport.DialContext = parallel, dial.Context
		core, err := minio.NewCore(at.Host, &minio.Options{Creds: credentials.NewChainCredentials(credentialSources()),
			Secure: at.TLS, Region: at.Region, MaxRetries: s3Attempts, Transport: retryAfter{transport}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.Host, err)
		}
		return core, nil
	})}
}

// credentialSources are the usual ones: variables, files of the AWS tools, then the role of a container or machine.
func credentialSources() []credentials.Provider {
	all := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if os.Getenv("AWS_EC2_METADATA_DISABLED") == "true" {
		return all
	}
	return append(all, &credentials.IAM{})
}

// open returns the client. Without credentials the storage is not asked. Those of files are read for each request, so
// that new ones replace those that have ended.
func (s s3) open() (*minio.Core, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	if keys, err := c.GetCreds(); err == nil && keys.AccessKeyID != "" {
		return c, nil
	}
	_, err = new(credentials.FileAWSCredentials).RetrieveWithCredContext(nil)
	if err == nil {
		err = errors.New("the profile has no keys")
	}
	return nil, fmt.Errorf("no credentials for %s: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (%w)",
		s.Host, err)
}

// translate replaces errors of the client by those of a bucket. Other errors name no object, so that they are equal for
// all objects.
func (s s3) translate(err error) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	denied := answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized
	switch {
	case answer.Code == minio.NoSuchKey:
		return errMissing
	case answer.StatusCode == http.StatusPreconditionFailed:
		return errExists
	case denied, answer.Code == "ExpiredToken", answer.Code == "InvalidToken":
		return fmt.Errorf("%w: %s", errDenied, s.shown(strings.TrimSuffix(answer.Message, ".")+" ("+answer.Code+")"))
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return fmt.Errorf("%s: %s", s.Host, s.shown(err.Error()))
}

// shown returns the start of a text that the server may have written, without the secrets that it got or may know.
func (s s3) shown(text string) string {
	c, _ := s.client() // there is an answer, and so a client
	keys, _ := c.GetCreds()
	return fmt.Sprintf("%.1000s", proc.NewSecrets(keys.SecretAccessKey, keys.SessionToken).Mask(text))
}

func (s s3) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	body, _, _, err := c.GetObject(ctx, s.Bucket, s.Prefix+name, minio.GetObjectOptions{})
	return body, s.translate(err)
}

func (s s3) Put(ctx context.Context, name string, body *io.SectionReader) error {
	return s.put(ctx, name, body, minio.PutObjectOptions{})
}

func (s s3) Create(ctx context.Context, name string, body *io.SectionReader) error {
	o := minio.PutObjectOptions{DisableMultipart: true} // the condition holds for one request
	o.SetMatchETagExcept("*")
	return s.put(ctx, name, body, o)
}

func (s s3) put(ctx context.Context, name string, body *io.SectionReader, o minio.PutObjectOptions) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	o.PartSize, o.NumThreads = uint64(max(s3Part, (body.Size()+s3Parts-1)/s3Parts)), s3Threads
	for range s3Attempts {
		_, err = c.Client.PutObject(ctx, s.Bucket, s.Prefix+name, body, body.Size(), o)
		if minio.ToErrorResponse(err).Code != "ConditionalRequestConflict" { // another machine writes it at the same time
			break
		}
	}
	return s.translate(err)
}

func (s s3) List(ctx context.Context, prefix string) iter.Seq2[blob, error] {
	return func(yield func(blob, error) bool) {
		c, err := s.open()
		if err != nil {
			yield(blob{}, err)
			return
		}
		all := minio.ListObjectsOptions{Prefix: s.Prefix + prefix, Recursive: true}
		for o := range c.Client.ListObjectsIter(ctx, s.Bucket, all) {
			if !yield(blob{strings.TrimPrefix(o.Key, s.Prefix), o.Size}, s.translate(o.Err)) {
				return
			}
		}
	}
}

// maxAnswer and maxTags limit an answer that is no object, in bytes and tags: the client decodes it as a whole, to 2 kB
// for an empty element. A page of a list has 1,000 names, each with at most 26 tags.
const maxAnswer, maxTags = 4 << 20, 1 << 15

// limited is a body that ends with an error after a number of bytes or tags.
type limited struct {
	io.ReadCloser
	bytes, tags int
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	l.bytes, l.tags = l.bytes-n, l.tags-bytes.Count(b[:n], []byte("<"))
	if l.bytes < 0 || l.tags < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes or %d tags", maxAnswer, maxTags)
	}
	return n, err
}

// retryAfter is a transport that returns the answer of a busy server after the time in its header Retry-After, so that
// the next attempt comes later.
type retryAfter struct{ http.RoundTripper }

func (p retryAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := p.RoundTripper.RoundTrip(request)
	if err == nil && answer.StatusCode == http.StatusSwitchingProtocols { // then the body does not end with the context
		answer.Body.Close()
		return nil, errors.New("the server switches to another protocol")
	}
	if err == nil && (request.Method != http.MethodGet || request.URL.RawQuery != "" || answer.StatusCode >= 300) {
		answer.Body = &limited{answer.Body, maxAnswer, maxTags} // an object alone may be longer
	}
	if err != nil || answer.StatusCode != http.StatusServiceUnavailable &&
		answer.StatusCode != http.StatusTooManyRequests {
		return answer, err
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-request.Context().Done():
		}
	}
	return answer, nil
}
