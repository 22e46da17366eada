// Fails to compile where the extension does not fit Pi's own types; "pi" stands for one version after another.
import type { ExtensionFactory } from "pi";

import piSession from "./pi-session.ts";

export const extension: ExtensionFactory = piSession;
