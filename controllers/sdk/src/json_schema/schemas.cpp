#include "branch.hpp"

#include <algorithm>

namespace aici::json_schema {

// References to other schemas, resolved as in RFC 3986.

namespace {

/// Returns the length of `scheme:`, or 0.
std::size_t scheme_length(std::string_view uri) {
  for (std::size_t i = 0; i < uri.size(); i++) {
    const char c = uri[i], small = static_cast<char>(c | 0x20);
    if (c == ':') return i == 0 ? 0 : i + 1;
    const bool letter = small >= 'a' && small <= 'z';
    if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) return 0;
  }
  return 0;
}

/// Removes `.` and `..`.
std::string straight(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view part = path.substr(0, end), name = part.starts_with('/') ? part.substr(1) : part;
    path.remove_prefix(end);
    if (name == "..") {
      out.erase(out.find_last_of('/') == std::string::npos ? 0 : out.find_last_of('/'));
    } else if (name != ".") {
      out += part;
      continue;
    }
    if (path.empty()) out += '/';
  }
  return out;
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

/// Resolves `reference` relative to `base`; both without a fragment.
std::string resolve_uri(std::string_view base, std::string_view reference) {
  if (reference.empty()) return std::string(base);
  if (scheme_length(reference) > 0) return std::string(reference);
  const std::size_t scheme = scheme_length(base);
  if (reference.starts_with("//")) return std::string(base.substr(0, scheme)).append(reference);
  std::size_t path = scheme;
  if (base.substr(scheme).starts_with("//")) path = std::min(base.find_first_of("/?", scheme + 2), base.size());
  const std::size_t end = std::min(base.find('?', path), base.size());
  if (reference.starts_with('?')) return std::string(base.substr(0, end)).append(reference);
  const std::size_t query = std::min(reference.find('?'), reference.size());
  std::string merged(reference.substr(0, query));
  if (!reference.starts_with('/')) {
    const std::size_t slash = base.substr(0, end).find_last_of('/');
    const bool has_folder = slash != std::string_view::npos && slash >= path;
    merged.insert(0, has_folder ? base.substr(path, slash + 1 - path) : path > scheme ? "/" : "");
  }
  return std::string(base.substr(0, path)).append(straight(merged)).append(reference.substr(query));
}

/// Decodes %xx.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i++)
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) << 4 | hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  return out;
}

struct Dialect {
  std::string_view uri;
  Draft draft;
};
constexpr Dialect kDialects[] = {
    {"json-schema.org/draft-04/schema", Draft::k4},         {"json-schema.org/draft-06/schema", Draft::k6},
    {"json-schema.org/draft-07/schema", Draft::k7},         {"json-schema.org/draft/2019-09/schema", Draft::k2019},
    {"json-schema.org/draft/2020-12/schema", Draft::k2020},
};

Draft draft_of(std::string_view uri, Draft otherwise) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
  if (uri.ends_with('#')) uri.remove_suffix(1);
  for (const Dialect& dialect : kDialects)
    if (dialect.uri == uri) return dialect.draft;
  return otherwise;
}

std::string_view without_fragment(std::string_view uri) { return uri.substr(0, uri.find('#')); }

}  // namespace

Schemas::Holds Schemas::holds(std::string_view keyword) {
  static constexpr std::pair<std::string_view, Holds> kKeywords[] = {
      {"$defs", Holds::kMembers},
      {"additionalItems", Holds::kOne},
      {"additionalProperties", Holds::kOne},
      {"allOf", Holds::kList},
      {"anyOf", Holds::kList},
      {"contains", Holds::kOne},
      {"definitions", Holds::kMembers},
      {"dependencies", Holds::kMembers},
      {"dependentSchemas", Holds::kMembers},
      {"else", Holds::kOne},
      {"if", Holds::kOne},
      {"items", Holds::kOne},
      {"not", Holds::kOne},
      {"oneOf", Holds::kList},
      {"patternProperties", Holds::kMembers},
      {"prefixItems", Holds::kList},
      {"properties", Holds::kMembers},
      {"propertyNames", Holds::kOne},
      {"then", Holds::kOne},
      {"unevaluatedItems", Holds::kOne},
      {"unevaluatedProperties", Holds::kOne},
  };
  for (const auto& [name, how] : kKeywords)
    if (name == keyword) return how;
  return Holds::kNothing;
}

template <class Visit>
void Schemas::each_child(Value schema, Visit visit) const {
  if (!document_.is(schema, Kind::kObject)) return;
  for (std::uint32_t i = 0; i < document_.count(schema); i++) {
    const Value member = document_.child(schema, i);
    const Holds how = holds(document_.name(member));
    if (how == Holds::kNothing) continue;
    const bool list = document_.is(member, Kind::kArray);
    if (how == Holds::kOne && !list)
      visit(member);
    else if (list || (how == Holds::kMembers && document_.is(member, Kind::kObject)))
      for (std::uint32_t k = 0; k < document_.count(member); k++) visit(document_.child(member, k));
  }
}

Schemas::Schemas(const Document& document) : document_(document), root_of_(document.size(), kNone) {
  std::vector<Value> work(document.roots().rbegin(), document.roots().rend());
  while (!work.empty()) {
    const Value schema = work.back();
    work.pop_back();
    enter(schema);
    each_child(schema, [&](Value child) { work.push_back(child); });
  }
  find_ambiguous();
}

/// Numbers the names that several resources define dynamically.
void Schemas::find_ambiguous() {
  std::map<std::string_view, std::uint32_t> places;
  for (const auto& [key, anchor] : dynamic_) places[key.second]++;
  for (const auto& [name, count] : places)
    if (count > 1) ambiguous_.emplace(name, ambiguous_.size());
  num_ambiguous_ = std::min(static_cast<std::uint32_t>(ambiguous_.size()), kMaxAmbiguous);
  for (const auto& [key, anchor] : dynamic_)
    if (const auto found = ambiguous_.find(key.second); found != ambiguous_.end() && found->second < num_ambiguous_)
      resources_[key.first].ambiguous.emplace_back(found->second, anchor);
}

std::uint32_t Schemas::resource(Value value) const {
  while (root_of_[value] == kNone) value = document_.parent(value);
  return root_of_[value];
}

/// Returns the draft that `$schema` names: also by the address of a given document, which has a draft itself.
Draft Schemas::draft_named(std::string_view dialect, Draft otherwise) const {
  for (const Value root : document_.roots()) {
    if (root == 0 || without_fragment(document_.uri(root)) != without_fragment(dialect)) continue;
    const Value own = document_.find(root, "$schema");
    if (document_.is(own, Kind::kString)) return draft_of(document_.text(own), otherwise);
  }
  return draft_of(dialect, otherwise);
}

/// Records the names and the dialect of a schema. Outer schemas come first.
void Schemas::enter(Value schema) {
  const auto text = [&](std::string_view name) -> std::string_view {
    const Value found = document_.find(schema, name);
    return document_.is(found, Kind::kString) ? document_.text(found) : std::string_view();
  };
  const bool root = document_.parent(schema) == kNone;
  // a document without `$schema` has the dialect of the schema that refers to it
  const Draft outer = !root ? draft(schema) : schema == 0 ? Draft::k2020 : resources_[0].draft;
  const Draft draft = draft_named(text("$schema"), outer);
  const bool inside = !root || schema != 0;  // of the schema, or of a document beside it
  const bool stated = !text("$schema").empty() || (inside && resources_[root ? 0 : resource(schema)].stated);
  std::string_view id = text(draft == Draft::k4 ? "id" : "$id");
  // in the older drafts, all keywords next to $ref are ignored
  if (draft <= Draft::k7 && document_.find(schema, "$ref") != kNone) id = {};
  const std::string base(root ? without_fragment(document_.uri(schema)) : resources_[resource(schema)].uri);
  // a schema that states its own draft is a document inside of another one
  if (root || !without_fragment(id).empty() || !text("$schema").empty()) {
    root_of_[schema] = static_cast<std::uint32_t>(resources_.size());
    resources_.push_back({schema, resolve_uri(base, without_fragment(id)), draft, stated});
    const std::string& uri = resources_.back().uri;
    if (root || uri != base) by_uri_[uri].push_back(root_of_[schema]);
    if (root && schema != 0 && uri != base) by_uri_[base].push_back(root_of_[schema]);
  }
  if (!stated && document_.is(document_.find(schema, "items"), Kind::kArray) &&
      document_.find(schema, "prefixItems") == kNone)
    lists_.insert(schema);
  const std::uint32_t here = resource(schema);
  if (draft <= Draft::k7 && id.starts_with('#') && id.size() > 1) anchors_[{here, std::string(id.substr(1))}] = schema;
  if (draft >= Draft::k2019 && !text("$anchor").empty()) anchors_[{here, std::string(text("$anchor"))}] = schema;
  if (const std::string name(text("$dynamicAnchor")); draft >= Draft::k2020 && !name.empty())
    anchors_[{here, name}] = dynamic_[{here, name}] = schema;
  const bool is_root = root_of_[schema] != kNone;
  if (is_root && draft == Draft::k2019 && document_.is(document_.find(schema, "$recursiveAnchor"), Kind::kTrue))
    dynamic_[{here, ""}] = schema;
}

/// Returns the resource with this URI, or kNone. If there are several, as in schemas that were put together, it is the
/// one with the smallest schema around both.
std::uint32_t Schemas::find_resource(const std::string& uri, Value from) const {
  const auto found = by_uri_.find(uri);
  if (found == by_uri_.end()) return kNone;
  const std::vector<std::uint32_t>& all = found->second;
  if (all.size() > 1) {
    std::map<Value, std::uint32_t> distances;
    for (std::uint32_t distance = 0; from != kNone; from = document_.parent(from)) distances[from] = distance++;
    const auto distance = [&](std::uint32_t resource) {
      for (Value around = resources_[resource].root; around != kNone; around = document_.parent(around))
        if (const auto known = distances.find(around); known != distances.end()) return known->second;
      return kNone;
    };
    return *std::min_element(all.begin(), all.end(), [&](auto a, auto b) { return distance(a) < distance(b); });
  }
  return all[0];
}

Value Schemas::find_anchor(std::uint32_t resource, std::string_view name) const {
  const auto found = anchors_.find({resource, std::string(name)});
  return found == anchors_.end() ? kNone : found->second;
}

Value Schemas::resolve(Value schema, std::string_view reference, std::string* problem) const {
  const std::uint32_t here = resource(schema);
  const std::string_view address = without_fragment(reference);
  const std::string uri = resolve_uri(resources_[here].uri, address);
  const std::string quoted = "`" + std::string(reference) + "`";
  std::uint32_t there = here;
  if (!address.empty()) {
    there = find_resource(uri, schema);
    if (there == kNone) {
      *problem = quoted + " refers to another document, which is not fetched: give it in `documents`, or copy it into $defs";
      return kNone;
    }
  }
  const std::string fragment =
      address.size() < reference.size() ? percent_decoded(reference.substr(address.size() + 1)) : "";
  Value target = resources_[there].root;
  if (fragment.starts_with('/'))
    target = document_.at(target, fragment);
  else if (!fragment.empty())
    target = find_anchor(there, fragment);
  if (target == kNone) {
    *problem = quoted + " refers to nothing in this schema";
    return kNone;
  }
  const Kind kind = document_.kind(target);
  if (kind == Kind::kObject || kind == Kind::kTrue || kind == Kind::kFalse) return target;
  *problem = quoted + " refers to something that is not a schema";
  return kNone;
}

Value Schemas::resolve_dynamic(Value schema, std::string_view reference, std::uint32_t* name,
                               std::string* problem) const {
  const Value target = resolve(schema, reference, problem);
  if (target == kNone) return kNone;
  const std::size_t hash = reference.find('#');
  const std::string anchor(hash == std::string_view::npos ? "" : reference.substr(hash + 1));
  if (!dynamic_.contains({resource(target), anchor})) return target;
  const auto found = ambiguous_.find(anchor);
  if (found == ambiguous_.end()) return target;
  *name = found->second;
  if (*name < num_ambiguous_) return target;
  *problem = "the target of this reference depends on the schemas around it, and there are too many such names";
  return kNone;
}

Scope Scopes::enter(Scope scope, Value schema) {
  if (scopes_[0].empty()) return 0;
  Targets targets = scopes_[scope];
  bool changed = false;
  for (const auto& [name, anchor] : schemas_.ambiguous_anchors(schema))
    if (targets[name] == kNone) targets[name] = anchor, changed = true;
  if (!changed) return scope;
  const auto [known, added] = numbers_.try_emplace(targets, static_cast<Scope>(scopes_.size()));
  if (!added) return known->second;
  if (scopes_.size() == kMax) {
    numbers_.erase(known);
    overflow_ = true;
    return scope;
  }
  scopes_.push_back(std::move(targets));
  return known->second;
}

Value Scopes::resolve(Scope scope, Value schema, std::string_view reference, std::string* problem) const {
  std::uint32_t name = kNone;
  const Value target = schemas_.resolve_dynamic(schema, reference, &name, problem);
  if (target == kNone || name == kNone) return target;
  return scopes_[scope][name] != kNone ? scopes_[scope][name] : target;
}

}  // namespace aici::json_schema
