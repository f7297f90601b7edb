// The servers that tests use: one without keys and one with, which the Go tests of the
// repository start.
const { AGENTBOX_TEST_OPEN_URL, AGENTBOX_TEST_KEYED_URL, AGENTBOX_TEST_KEY } = process.env;

const need = (there) => ({ skip: there ? false : "it needs the servers that AGENTBOX_TEST_OPEN_URL and AGENTBOX_TEST_KEYED_URL name" });

export const open = { url: AGENTBOX_TEST_OPEN_URL, needed: need(AGENTBOX_TEST_OPEN_URL) };
export const keyed = { url: AGENTBOX_TEST_KEYED_URL, key: AGENTBOX_TEST_KEY, needed: need(AGENTBOX_TEST_KEYED_URL) };
/** One that lets no page in. */
export const closed = { url: process.env.AGENTBOX_TEST_CLOSED_URL };
/** That of the pages that the others let in. */
export const origin = process.env.AGENTBOX_TEST_ORIGIN;
