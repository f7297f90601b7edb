// Package mint makes the certificates with which the proxy ends the TLS of
// intercepted connections itself.
//
// Each sandbox has an authority of its own. Its key follows from one secret of the
// daemon and the sandbox's id, so it is the same after a restart and is kept
// nowhere; a sandbox has nothing but the certificate. What the authority of one
// sandbox signed means nothing in another.
package mint
