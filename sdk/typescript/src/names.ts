// The API's names are in snake_case, those of TypeScript in camelCase.
import { maps } from "./types.js";

const toCamel = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
const toSnake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** An answer with names of TypeScript. */
export function fromApi<T>(value: unknown): T {
  return rename(value, toCamel) as T;
}

/** A request with names of the API. */
export function toApi(value: unknown): unknown {
  return rename(value, toSnake);
}

function rename(value: unknown, convert: (name: string) => string): unknown {
  if (Array.isArray(value)) {
    return value.map((item) => rename(item, convert));
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const renamed: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value)) {
    renamed[convert(name)] = maps.has(name) ? item : rename(item, convert);
  }
  return renamed;
}
