/** Checks a JSON value against a schema of docs/schema/ws. It supports the keywords that those schemas use. */

/** What is wrong with a value, and where. */
export interface SchemaError {
  /** The path of the field, such as `sender.role`; empty for the value itself. */
  readonly field: string;
  /** What is wrong, for people. */
  readonly message: string;
}

interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  propertyNames?: Schema;
  items?: Schema;
  oneOf?: Schema[];
  not?: { required: string[] };
  const?: unknown;
  format?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  maxItems?: number;
  maxProperties?: number;
}

const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;

/** The first error of `value`, or `undefined` if it is valid. */
export function check(schema: unknown, value: unknown): SchemaError | undefined {
  return checkAt(schema as Schema, value, "");
}

function checkAt(schema: Schema, value: unknown, field: string): SchemaError | undefined {
  const wrong = (message: string): SchemaError => ({ field, message: `${field === "" ? "the object" : `\`${field}\``} ${message}` });
  if (schema.oneOf) {
    return schema.oneOf.some((one) => checkAt(one, value, field) === undefined) ? undefined : wrong("has no allowed value");
  }
  if ("const" in schema && value !== schema.const) return wrong(`is not ${JSON.stringify(schema.const)}`);
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length > 0 && !types.some((type) => isOfType(type, value))) return wrong(`is not of the type ${types.join(" or ")}`);
  if (typeof value === "string") return checkText(schema, value, wrong);
  if (typeof value === "number") return checkNumber(schema, value, wrong);
  if (Array.isArray(value)) return checkList(schema, value, field, wrong);
  if (typeof value === "object" && value !== null) return checkObject(schema, value as Record<string, unknown>, field, wrong);
  return undefined;
}

function isOfType(type: string, value: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return typeof value === "object" && value !== null && !Array.isArray(value);
  if (type === "integer") return Number.isInteger(value);
  return typeof value === type;
}

type Wrong = (message: string) => SchemaError;

function checkText(schema: Schema, text: string, wrong: Wrong): SchemaError | undefined {
  if (schema.minLength !== undefined && text.length < schema.minLength) return wrong("is empty");
  // A character outside of the basic plane has two units in JavaScript and counts once.
  if (schema.maxLength !== undefined && text.length > schema.maxLength && [...text].length > schema.maxLength) {
    return wrong(`has more than ${schema.maxLength} characters`);
  }
  if (schema.format === "date-time" && !(RFC_3339.test(text) && !Number.isNaN(Date.parse(text)))) {
    return wrong("is not a time in RFC 3339 with an offset");
  }
  return undefined;
}

function checkNumber(schema: Schema, number: number, wrong: Wrong): SchemaError | undefined {
  if (schema.minimum !== undefined && number < schema.minimum) return wrong(`is less than ${schema.minimum}`);
  if (schema.maximum !== undefined && number > schema.maximum) return wrong(`is more than ${schema.maximum}`);
  return undefined;
}

function checkList(schema: Schema, list: unknown[], field: string, wrong: Wrong): SchemaError | undefined {
  if (schema.maxItems !== undefined && list.length > schema.maxItems) return wrong(`has more than ${schema.maxItems} items`);
  if (schema.items === undefined) return undefined;
  for (const [index, item] of list.entries()) {
    const error = checkAt(schema.items, item, `${field}[${index}]`);
    if (error !== undefined) return error;
  }
  return undefined;
}

function checkObject(schema: Schema, object: Record<string, unknown>, field: string, wrong: Wrong): SchemaError | undefined {
  const inside = (name: string): string => (field === "" ? name : `${field}.${name}`);
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(object, name)) return { field: inside(name), message: `\`${inside(name)}\` is missing` };
  }
  if (schema.not !== undefined && schema.not.required.every((name) => Object.hasOwn(object, name))) {
    return wrong(`has ${schema.not.required.join(" and ")}; only one is allowed`);
  }
  for (const [name, value] of Object.entries(object)) {
    const known = schema.properties !== undefined && Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    const extra = schema.additionalProperties;
    if (known === undefined && extra === false) return { field: inside(name), message: `the field \`${inside(name)}\` is unknown` };
    const of = known ?? (typeof extra === "object" ? extra : undefined);
    const error = of === undefined ? undefined : checkAt(of, value, inside(name));
    if (error !== undefined) return error;
  }
  return undefined;
}
